package dispatch

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func runsOf(names ...string) []Run {
	runs := make([]Run, len(names))
	for i, n := range names {
		runs[i] = Run{SKey: n, Tenant: n[:1], RunID: uuid.NewSHA1(uuid.NameSpaceOID, []byte(n))}
	}
	return runs
}

func names(runs []Run) []string {
	out := make([]string, len(runs))
	for i, r := range runs {
		out[i] = r.SKey
	}
	return out
}

// sessions answers with what a test sets; sessions that it does not know are not there.
type sessions struct {
	running map[string]int
	known   map[string]store.Session
	err     error
}

func (s *sessions) RunningByTenant(context.Context) (map[string]int, error) { return s.running, s.err }

func (s *sessions) Session(_ context.Context, skey string) (store.Session, error) {
	if got, known := s.known[skey]; known {
		return got, nil
	}
	return store.Session{}, store.ErrNotFound
}

// queued makes sessions of runs that nobody has claimed.
func queued(names ...string) map[string]store.Session {
	known := map[string]store.Session{}
	for _, r := range runsOf(names...) {
		known[r.SKey] = store.Session{State: store.Queued, RunID: r.RunID}
	}
	return known
}

func TestTurns_TenantsTakeTurnsInTheirOwnOrder(t *testing.T) {
	t.Parallel()
	ten := newTenants(nil)
	require.Equal(t, []string{"a1", "b1", "c1", "a2", "b2", "a3"}, names(ten.turns(runsOf("a1", "a2", "a3", "b1", "b2", "c1"))))
	require.Equal(t, []string{"a1", "a2"}, names(ten.turns(runsOf("a1", "a2"))))
	require.Empty(t, ten.turns(nil))
}

func TestTurns_NobodyGoesBeyondItsLimit(t *testing.T) {
	t.Parallel()
	ten := newTenants(map[string]int{"a": 2})
	require.Equal(t, []string{"a1", "b1", "a2", "b2", "b3"}, names(ten.turns(runsOf("a1", "a2", "a3", "b1", "b2", "b3"))))
	require.Equal(t, []string{"b4"}, names(ten.turns(runsOf("a3", "b4"))), "what was dispatched counts before the store knows it")
	require.Equal(t, []string{"a2", "a1"}, names(ten.turns(runsOf("a3", "a2", "a1"))), "what was dispatched is rung again")
	require.Empty(t, ten.turns(runsOf("a4")))
}

func TestRecount_WhatNobodyHasClaimedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	ten := newTenants(map[string]int{"a": 2})
	s := &sessions{known: queued("a1", "a2")}
	ten.turns(runsOf("a1", "a2"))
	require.NoError(t, ten.recount(t.Context(), s))
	require.Empty(t, ten.turns(runsOf("a3")), "workers that have no time do not open the limit")

	s.known["a1"], s.running = store.Session{State: store.Running, RunID: s.known["a1"].RunID}, map[string]int{"a": 1}
	require.NoError(t, ten.recount(t.Context(), s))
	require.Empty(t, ten.turns(runsOf("a3")), "one runs, one is about to")

	s.known["a1"], s.running = store.Session{State: store.Queued, RunID: uuid.New()}, nil
	require.NoError(t, ten.recount(t.Context(), s))
	require.Equal(t, []string{"a3"}, names(ten.turns(runsOf("a3", "a4"))), "the first has ended")

	delete(s.known, "a2")
	s.running = map[string]int{"a": 5}
	require.NoError(t, ten.recount(t.Context(), s))
	require.Empty(t, ten.turns(runsOf("a5")), "more run than may")
}

func TestRecount_KeepsTheLastCountsWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	ten := newTenants(map[string]int{"a": 1})
	s := &sessions{running: map[string]int{"a": 1}}
	require.NoError(t, ten.recount(t.Context(), s))
	s.running, s.err = nil, store.ErrUnavailable
	require.ErrorIs(t, ten.recount(t.Context(), s), store.ErrUnavailable)
	require.Empty(t, ten.turns(runsOf("a1")))
}
