package runtime

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/worker/internal/agentcache"
)

type silent struct{}

func (silent) Generate(context.Context, llm.Request, func(string)) (llm.Response, error) {
	return llm.Response{}, nil
}

func (silent) Provider() string { return "silent" }

// toolbox is a tool server with one tool, after so many failures.
type toolbox struct{ failures, lists int }

func (b *toolbox) Tools(context.Context) ([]tool.Spec, error) {
	if b.lists++; b.lists <= b.failures {
		return nil, tool.ErrUnavailable
	}
	return []tool.Spec{{Name: "look", Effect: tool.Read}, {Name: agent.AskUser, Effect: tool.Unsafe}}, nil
}

func (*toolbox) Execute(context.Context, tool.Request, func(string)) (tool.Result, error) {
	return tool.Result{}, nil
}

func testProfile(t *testing.T, tools []string, executor tool.Executor) *profile {
	t.Helper()
	profiles, err := newProfiles(config.Config{Profiles: map[string]config.Profile{"main": {Provider: "p", Tools: tools}}}, Deps{
		Models: map[string]llm.Model{"p": silent{}}, Executor: executor, Logger: slog.New(slog.DiscardHandler),
	}, new(sync.WaitGroup))
	require.NoError(t, err)
	return profiles["main"]
}

func TestProfile_EachSpeakerHasAnAgentThatIsKept(t *testing.T) {
	t.Parallel()
	p := testProfile(t, nil, nil)
	cache := agentcache.New[*agent.Loop](agentcache.DefaultOptions(), nil)
	defer cache.Close()
	lease := func(skey, user string) agentLease {
		l, err := p.agentOf(t.Context(), cache, skey, session.Source{UserID: user})
		require.NoError(t, err)
		l.Release()
		return l
	}
	ann := lease("s", "ann")
	require.False(t, ann.Reused)
	again := lease("s", "ann")
	require.True(t, again.Reused)
	require.Same(t, ann.Value, again.Value)
	bob := lease("s", "bob")
	require.False(t, bob.Reused, "what acts for a person is not shared with another")
	require.NotSame(t, ann.Value, bob.Value)
	require.False(t, lease("other", "bob").Reused)
}

func TestProfile_ListsToolsAgainWhenTheServerIsBackAndBuildsANewAgent(t *testing.T) {
	t.Parallel()
	box := &toolbox{failures: 1}
	p := testProfile(t, []string{"*"}, box)
	first, n, err := p.toolset(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{agent.AskUser}, first.Names(), "what runs in the worker is always there")
	before, err := p.signature(n, session.Source{})
	require.NoError(t, err)

	p.expires = p.expires.Add(-listAgain)
	second, n, err := p.toolset(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{agent.AskUser, "look"}, second.Names())
	ask, ok := second.Lookup(agent.AskUser)
	require.True(t, ok)
	require.Equal(t, tool.Read, ask.Effect, "no server can take its name")
	after, err := p.signature(n, session.Source{})
	require.NoError(t, err)
	require.NotEqual(t, before, after)

	_, _, err = p.toolset(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, box.lists)
}

func TestProfile_MayAskOnlyWhereItsToolsSaySo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		allowed, want []string
	}{
		"everything": {[]string{"*"}, []string{agent.AskUser, "look"}},
		"by name":    {[]string{agent.AskUser}, []string{agent.AskUser}},
		"another":    {[]string{"look"}, []string{"look"}},
		"nothing":    {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools, _, err := testProfile(t, tc.allowed, &toolbox{}).toolset(t.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, tc.want, tools.Names())
		})
	}
}
