package agentcache_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/worker/internal/agentcache"
)

// side is one configuration of testdata/agent_signature.json. Fields that are not here must not matter.
type side struct {
	Model   string `json:"model"`
	Runtime struct {
		APIKey            string         `json:"api_key"`
		BaseURL           string         `json:"base_url"`
		Provider          string         `json:"provider"`
		RequestedProvider string         `json:"requested_provider"`
		APIMode           string         `json:"api_mode"`
		Capabilities      map[string]any `json:"capabilities"`
	} `json:"runtime"`
	Toolsets         []string       `json:"enabled_toolsets"`
	Prompt           string         `json:"ephemeral_prompt"`
	CacheKeys        map[string]any `json:"cache_keys"`
	UserID           any            `json:"user_id"`
	UserIDAlt        string         `json:"user_id_alt"`
	SkipContextFiles bool           `json:"skip_context_files"`
}

func (s side) config() agentcache.Config {
	c := agentcache.Config{
		Model: s.Model, APIKey: s.Runtime.APIKey, BaseURL: s.Runtime.BaseURL, Provider: s.Runtime.Provider,
		RequestedProvider: s.Runtime.RequestedProvider, APIMode: s.Runtime.APIMode, Capabilities: s.Runtime.Capabilities,
		Toolsets: s.Toolsets, Prompt: s.Prompt, Settings: s.CacheKeys, UserIDAlt: s.UserIDAlt,
		SkipContextFiles: s.SkipContextFiles,
	}
	if s.UserID != nil {
		c.UserID = fmt.Sprint(s.UserID)
	}
	return c
}

type pair struct {
	Name     string `json:"name"`
	A        side   `json:"a"`
	B        side   `json:"b"`
	Same     bool   `json:"expected_same"`
	Expected struct {
		A string `json:"a"`
		B string `json:"b"`
	} `json:"reference_hex"`
}

func TestSign_TellsEqualFromDifferentConfigurations(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/agent_signature.json")
	require.NoError(t, err)
	var pairs []pair
	require.NoError(t, json.Unmarshal(raw, &pairs))
	require.Len(t, pairs, 30)
	for _, p := range pairs {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			a, err := p.A.config().Sign()
			require.NoError(t, err)
			b, err := p.B.config().Sign()
			require.NoError(t, err)
			require.Equal(t, p.Same, a == b)
			require.Equal(t, p.Expected.A, string(a))
			require.Equal(t, p.Expected.B, string(b))
		})
	}
}

func TestSign_KeepsFieldsApart(t *testing.T) {
	t.Parallel()
	configs := []agentcache.Config{
		{Prompt: `a", "b`},
		{Prompt: "a", UserID: "b"},
		{Prompt: "\U0001F600"},
		{Prompt: "\n"},
		{Prompt: `\n`},
		{Prompt: "\x7f"},
		{UserID: "x"},
		{UserIDAlt: "x"},
		{Toolsets: []string{"a, b"}},
		{Toolsets: []string{"a", "b"}},
		{Settings: map[string]any{"x": 1}},
		{Capabilities: map[string]any{"x": 1}},
		{Settings: map[string]any{"x": "1"}},
	}
	seen := map[agentcache.Signature]int{}
	for i, c := range configs {
		s, err := c.Sign()
		require.NoError(t, err)
		require.NotContains(t, seen, s, "configuration %d", i)
		seen[s] = i
	}
}

func TestSign_RefusesValuesWithoutForm(t *testing.T) {
	t.Parallel()
	_, err := agentcache.Config{Settings: map[string]any{"x": make(chan int)}}.Sign()
	require.ErrorContains(t, err, "encode chan int")
}
