package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func aliasCases() []testCase {
	return []testCase{
		{"id without an alias stands for itself", aliasNone},
		{"alias stands for the older id", aliasLearn},
		{"alias of an alias stands for the oldest id", aliasChain},
		{"alias that is known is never changed", aliasKept},
		{"alias learnt both ways round changes nothing", aliasBothWays},
		{"ids are those of a tenant, platform and account", aliasScope},
		{"alias with poison is rejected", aliasPoison},
		{"learners that race agree on one canonical id", aliasRace},
	}
}

func group(id string) store.Address {
	return store.Address{Tenant: tenant, Platform: "telegram", Account: "bot", ID: id}
}

func (e *env) resolve(t tb, ids ...string) []string {
	t.Helper()
	addresses := make([]store.Address, 0, len(ids))
	for _, id := range ids {
		addresses = append(addresses, group(id))
	}
	got, err := e.Store.ResolveAliases(t.Context(), addresses)
	require.NoError(t, err)
	return got
}

func (e *env) learn(t tb, id, older string) string {
	t.Helper()
	got, err := e.Store.LearnAlias(t.Context(), group(id), older)
	require.NoError(t, err)
	return got
}

func aliasNone(t *testing.T, e *env) {
	require.Empty(t, e.resolve(t))
	require.Equal(t, []string{"b", "a", "b", ""}, e.resolve(t, "b", "a", "b", ""))
	require.Equal(t, "a", e.learn(t, "a", "a"), "an id is no alias of itself")
	require.Equal(t, "b", e.learn(t, "a", "b"), "and is still free to become one")
}

func aliasLearn(t *testing.T, e *env) {
	require.Equal(t, "old", e.learn(t, "new", "old"))
	require.Equal(t, "old", e.learn(t, "new", "old"))
	require.Equal(t, "old", e.learn(t, "another", "old"))
	require.Equal(t, []string{"old", "x", "old", "old", "new "}, e.resolve(t, "new", "x", "old", "another", "new "))
}

func aliasChain(t *testing.T, e *env) {
	e.learn(t, "b", "a")
	require.Equal(t, "a", e.learn(t, "c", "b"))
	require.Equal(t, "a", e.learn(t, "d", "c"))
	require.Equal(t, []string{"a", "a", "a", "a"}, e.resolve(t, "a", "b", "c", "d"))
}

func aliasKept(t *testing.T, e *env) {
	e.learn(t, "b", "a")
	require.Equal(t, "a", e.learn(t, "b", "other"), "it is an alias")
	require.Equal(t, "a", e.learn(t, "a", "other"), "it stands for others")
	require.Equal(t, []string{"a", "a", "other"}, e.resolve(t, "a", "b", "other"))
	require.Equal(t, "x", e.learn(t, "other", "x"), "what was not learnt is not known")
}

func aliasBothWays(t *testing.T, e *env) {
	require.Equal(t, "a", e.learn(t, "b", "a"))
	require.Equal(t, "a", e.learn(t, "a", "b"))
	require.Equal(t, []string{"a", "a"}, e.resolve(t, "a", "b"))
}

func aliasScope(t *testing.T, e *env) {
	e.learn(t, "b", "a")
	for name, change := range map[string]func(*store.Address){
		"tenant": func(a *store.Address) { a.Tenant = "other" }, "platform": func(a *store.Address) { a.Platform = "other" },
		"account": func(a *store.Address) { a.Account = "other" },
	} {
		other, lead := group("b"), group("a")
		change(&other)
		change(&lead)
		got, err := e.Store.ResolveAliases(t.Context(), []store.Address{other, group("b")})
		require.NoError(t, err)
		require.Equal(t, []string{"b", "a"}, got, name)
		canonical, err := e.Store.LearnAlias(t.Context(), lead, "b")
		require.NoError(t, err)
		require.Equal(t, "b", canonical, name)
	}
	require.Equal(t, []string{"a"}, e.resolve(t, "b"))
}

func aliasPoison(t *testing.T, e *env) {
	for _, pair := range [][2]string{{"a\x00", "b"}, {"a", "b\xff"}} {
		_, err := e.Store.LearnAlias(t.Context(), group(pair[0]), pair[1])
		require.ErrorIs(t, err, store.ErrRejected)
	}
	require.Equal(t, []string{"a", "b"}, e.resolve(t, "a", "b"))
}

func aliasRace(t *testing.T, e *env) {
	const rounds, learners, ids = 20, 6, 3
	for round := range rounds {
		name := func(i int) string { return fmt.Sprintf("%d-%d", round, i) }
		start := make(chan struct{})
		answers := make([]string, learners)
		var g errgroup.Group
		for i := range learners {
			a := rand.IntN(ids)
			older := (a + 1 + rand.IntN(ids-1)) % ids
			g.Go(func() (err error) {
				<-start
				answers[i], err = e.Store.LearnAlias(t.Context(), group(name(a)), name(older))
				return err
			})
		}
		close(start)
		require.NoError(t, g.Wait())
		all := []string{name(0), name(1), name(2)}
		leads := e.resolve(t, all...)
		require.Equal(t, leads, e.resolve(t, leads...), "a canonical id is no alias: %v", leads)
		require.Subset(t, leads, answers)
	}
}
