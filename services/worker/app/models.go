package app

import (
	"errors"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/llm/demo"
	"github.com/hermes-runtime/hermes/pkg/llm/openai"
)

// OpenModels returns the models of all configured providers by name. It reads their secrets and sends nothing.
func OpenModels(cfg config.Config) (map[string]llm.Model, error) {
	models := map[string]llm.Model{}
	var errs []error
	for name, p := range cfg.Providers {
		m, err := openModel(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("providers.%s: %w", name, err))
			continue
		}
		models[name] = m
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return models, nil
}

func openModel(p config.Provider) (llm.Model, error) {
	switch p.Kind {
	case "demo":
		return demo.New(), nil
	case "openai":
		key, err := p.APIKey.Value()
		if err != nil {
			return nil, fmt.Errorf("api_key: %w", err)
		}
		return openai.New(openai.Config{BaseURL: p.BaseURL, APIKey: key, Model: p.Model, Timeout: p.Timeout}), nil
	default:
		return nil, fmt.Errorf("kind: %q is neither demo nor openai", p.Kind)
	}
}
