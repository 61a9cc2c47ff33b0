package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/services/worker/app"
)

func TestOpenModels_OpensEveryProvider(t *testing.T) {
	t.Setenv("WORKER_TEST_KEY", "k")
	key, err := config.NewSecret("env:WORKER_TEST_KEY")
	require.NoError(t, err)
	models, err := app.OpenModels(config.Config{Providers: map[string]config.Provider{
		"a": {Kind: "demo"}, "b": {Kind: "openai", APIKey: key, Model: "m"},
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"demo", "openai"}, []string{models["a"].Provider(), models["b"].Provider()})
}

func TestOpenModels_NamesEveryProviderThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	missing, err := config.NewSecret("env:WORKER_TEST_NO_SUCH_KEY")
	require.NoError(t, err)
	_, err = app.OpenModels(config.Config{Providers: map[string]config.Provider{
		"a": {Kind: "demo"}, "b": {Kind: "openai", APIKey: missing}, "c": {Kind: "oracle"},
	}})
	require.ErrorContains(t, err, "providers.b: api_key: secret env:WORKER_TEST_NO_SUCH_KEY")
	require.ErrorContains(t, err, `providers.c: kind: "oracle"`)
	require.NotContains(t, err.Error(), "providers.a")
}
