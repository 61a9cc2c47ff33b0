package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

const (
	// listTimeout bounds the question which tools there are.
	listTimeout = 2 * time.Second
	// listAgain is how long a profile whose tools could not be listed goes without them.
	listAgain = 10 * time.Second
)

// profile is an agent: its configuration and its loop, which is built when the first run needs it and kept.
type profile struct {
	name   string
	cfg    config.Profile
	agent  agent.Config
	deps   agent.Deps
	logger *slog.Logger

	mu   sync.Mutex
	loop *agent.Loop
	// expires is set while the loop stands in for one with tools.
	expires time.Time
}

// errUnknownProfile: the session belongs to a profile that is not configured here.
var errUnknownProfile = errors.New("unknown profile")

func newProfiles(cfg config.Config, deps Deps, calls *sync.WaitGroup) (map[string]*profile, error) {
	profiles := map[string]*profile{}
	var errs []error
	for name, p := range cfg.Profiles {
		p = p.WithDefaults()
		model := deps.Models[p.Provider]
		if model == nil {
			errs = append(errs, fmt.Errorf("profiles.%s.provider: no model for %q", name, p.Provider))
			continue
		}
		provider := cfg.Providers[p.Provider]
		profiles[name] = &profile{
			name: name, cfg: p, logger: deps.Logger,
			agent: agent.Config{
				ModelName: cmp.Or(p.Model, provider.Model, provider.Kind), System: cmp.Or(p.Prompt, defaultPrompt),
				Steps: p.Limits.Steps, HistoryLimit: p.Limits.History, OutputTokens: p.Limits.OutputTokens,
				ToolTimeout: cfg.Toolexec.Timeout, ToolResultBytes: cfg.Toolexec.OutputBytes,
			},
			deps: agent.Deps{Model: model, Executor: deps.Executor, Go: calls.Go, Tracer: deps.Tracer, Meter: deps.Meter},
		}
	}
	return profiles, errors.Join(errs...)
}

// hasTools reports whether the profile may call anything.
func (p *profile) hasTools() bool { return p.deps.Executor != nil && len(p.cfg.Tools) > 0 }

// agentLoop returns the loop of the profile. While no tool server answers, runs go on without tools.
func (p *profile) agentLoop(ctx context.Context) (*agent.Loop, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loop != nil && (p.expires.IsZero() || time.Now().Before(p.expires)) {
		return p.loop, nil
	}
	tools, err := p.tools(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	p.expires = time.Time{}
	if err != nil {
		p.logger.WarnContext(ctx, "running without tools", "profile", p.name, "err", err)
		p.expires = time.Now().Add(listAgain)
	}
	deps := p.deps
	deps.Tools = tools
	if p.loop, err = agent.New(p.agent, deps); err != nil {
		return nil, fmt.Errorf("build agent of profile %s: %w", p.name, err)
	}
	return p.loop, nil
}

// tools returns what the profile may call. A tool with a broken schema is left out, the others stay.
func (p *profile) tools(ctx context.Context) (*tool.Registry, error) {
	if !p.hasTools() {
		return tool.NoTools(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	specs, err := p.deps.Executor.Tools(ctx)
	if err != nil {
		return tool.NoTools(), fmt.Errorf("list tools: %w", err)
	}
	registry, err := tool.NewRegistry(specs...)
	if err != nil {
		p.logger.WarnContext(ctx, "tools left out", "profile", p.name, "err", err)
	}
	return registry.Subset(p.cfg.Tools), nil
}
