package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func operatorCases() []testCase {
	return []testCase{
		{"pause fences the run off and keeps it", pauseRunning},
		{"session is paused in every state", pauseStates},
		{"pausing twice changes nothing", pauseTwice},
		{"paused session stores messages and starts nothing", pauseStores},
		{"session goes on with the run that was interrupted", unpauseRun},
		{"session goes on with a new run for what waits", unpauseWanted},
		{"session with nothing to do goes on idle", unpauseIdle},
		{"session that is not paused stays as it is", unpauseOther},
		{"stop of a paused run ends it when it goes on", unpauseStopped},
		{"unknown sessions are neither paused nor unpaused", pauseUnknown},
		{"sessions are found by tenant and state", findSessions},
		{"dead letters are listed newest first", letterPages},
		{"replays of a dead letter are counted", letterReplays},
		{"unknown dead letters are not found", letterUnknown},
	}
}

func pauseRunning(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	got := e.pause(t, c)
	require.Equal(t, e.session(t, c), got)
	require.Equal(t, []any{store.Paused, int64(2), run.RunID, ""}, []any{got.State, got.Gen, got.RunID, got.Owner})
	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunWaiting, "", int64(2)}, []any{r.State, r.Owner, r.LastGen})
	e.requireOff(t, run)
	running, queued, err := e.Store.Backlog(t.Context(), allPartitions())
	require.NoError(t, err)
	require.Equal(t, []int{0, 0}, []int{running, queued})
}

func pauseStates(t *testing.T, e *env) {
	chats := e.busy(t)
	chats["idle"] = newChat("idle")
	e.answer(t, chats["idle"], "m1")
	for name, c := range chats {
		before := e.session(t, c)
		if before.State == store.Paused {
			continue
		}
		got := e.pause(t, c)
		require.Equal(t, []any{store.Paused, before.Gen + 1, before.RunID, ""}, []any{got.State, got.Gen, got.RunID, got.Owner}, name)
		require.Equal(t, []int64{before.LastSeq, before.DoneSeq, before.WantSeq}, []int64{got.LastSeq, got.DoneSeq, got.WantSeq}, name)
		if before.RunID != uuid.Nil {
			require.Equal(t, store.RunWaiting, e.run(t, before.RunID).State, name)
		}
	}
	e.Advance(t, time.Hour)
	require.Empty(t, e.queued(t, allPartitions(), 0))
	require.Empty(t, e.running(t))
	require.Empty(t, e.wake(t, newID(), newID(), newID()))
}

func pauseTwice(t *testing.T, e *env) {
	c := newChat("a")
	e.start(t, c, "m1")
	first := e.pause(t, c)
	require.Equal(t, first, e.pause(t, c))
	require.Equal(t, first, e.session(t, c))
}

func pauseStores(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	e.pause(t, c)
	for i, m := range []store.AdmitMessage{c.user("m2"), c.approval("m3"), c.stop("m4"), c.collected("m5")} {
		got := e.admitOne(t, m)
		require.Equal(t, store.Admitted{Seq: int64(i + 2), Gen: 3, State: store.Paused}, got)
	}
}

func unpauseRun(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: 1, Messages: []store.Message{said(1, "user", "m1", 1)}})
	e.pause(t, c)
	e.Advance(t, 2*time.Hour)
	require.Equal(t, store.Unpaused{State: store.Queued, Gen: 3, RunID: run.RunID, RunClass: runClass}, e.unpause(t, c))
	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunQueued, int64(3)}, []any{r.State, r.LastGen})
	queued := e.queued(t, allPartitions(), 0)
	require.Len(t, queued, 1)
	require.Less(t, queued[0].Age, time.Hour, "its age begins anew")
	again := e.claim(t, c, worker)
	require.Equal(t, []any{run.RunID, int64(1), 0}, []any{again.RunID, again.FirstGen, again.Attempt})
	e.finish(t, done(again, 1))
	e.requireTiles(t, c, run.RunID)
}

func unpauseWanted(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	e.pause(t, c)
	e.admit(t, c.users("m2", "m3")...)
	next := newID()
	got, err := e.Store.Unpause(t.Context(), c.skey, next)
	require.NoError(t, err)
	require.Equal(t, store.Unpaused{State: store.Queued, Gen: 4, RunID: next, RunClass: runClass}, got)
	run := e.claim(t, c, worker)
	require.Equal(t, []any{next, int64(4), 2}, []any{run.RunID, run.FirstGen, len(run.Inbox)})
}

func unpauseIdle(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	e.pause(t, c)
	e.admitOne(t, c.command("m2"))
	require.Equal(t, store.Unpaused{State: store.Idle, Gen: 4, RunClass: runClass}, e.unpause(t, c))
	require.True(t, e.admitOne(t, c.user("m3")).Created)
}

func unpauseOther(t *testing.T, e *env) {
	for name, c := range e.busy(t) {
		before := e.session(t, c)
		if before.State == store.Paused {
			continue
		}
		require.Equal(t,
			store.Unpaused{State: before.State, Gen: before.Gen, RunID: before.RunID, RunClass: runClass}, e.unpause(t, c), name)
		require.Equal(t, before, e.session(t, c), name)
	}
}

func unpauseStopped(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.pause(t, c)
	e.admitOne(t, c.stop("m2"))
	e.unpause(t, c)
	again := e.claim(t, c, worker)
	require.Equal(t, run.RunID, again.StopRun)
	e.finish(t, cancelled(again, 2))
}

func pauseUnknown(t *testing.T, e *env) {
	_, err := e.Store.Pause(t.Context(), newChat("a").skey)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = e.Store.Unpause(t.Context(), newChat("a").skey, newID())
	require.ErrorIs(t, err, store.ErrNotFound)
}

func (e *env) found(t tb, q store.SessionQuery) []string {
	t.Helper()
	got, err := e.Store.FindSessions(t.Context(), q)
	require.NoError(t, err)
	var out []string
	for _, s := range got {
		out = append(out, s.SKey)
	}
	return out
}

func findSessions(t *testing.T, e *env) {
	var all, paused []string
	for i, name := range uids("chat", 9) {
		c := newChat(name)
		e.answer(t, c, "m1")
		all = append(all, c.skey)
		if i%3 == 0 {
			e.pause(t, c)
			paused = append(paused, c.skey)
		}
	}
	foreign := newChat("foreign").user("m1")
	foreign.Tenant = "globex"
	e.admitOne(t, foreign)
	slices.Sort(all)
	slices.Sort(paused)
	require.Equal(t, all, e.found(t, store.SessionQuery{Tenant: tenant, Limit: 100}))
	require.Equal(t, paused, e.found(t, store.SessionQuery{State: store.Paused, Limit: 100}))
	require.Equal(t, []string{foreign.SKey}, e.found(t, store.SessionQuery{Tenant: "globex", State: store.Queued, Limit: 100}))
	require.Empty(t, e.found(t, store.SessionQuery{Tenant: "globex", State: store.Idle, Limit: 100}))
	require.Len(t, e.found(t, store.SessionQuery{Limit: 100}), 10)

	got := e.found(t, store.SessionQuery{Tenant: tenant, Limit: 4})
	got = append(got, e.found(t, store.SessionQuery{Tenant: tenant, Limit: 4, After: got[3]})...)
	got = append(got, e.found(t, store.SessionQuery{Tenant: tenant, Limit: 4, After: got[7]})...)
	require.Equal(t, all, got)
	whole, err := e.Store.FindSessions(t.Context(), store.SessionQuery{State: store.Paused, Limit: 1})
	require.NoError(t, err)
	one, err := e.Store.Session(t.Context(), paused[0])
	require.NoError(t, err)
	require.Equal(t, []store.Session{one}, whole)
}

// bury admits n dead letters, oldest first, and returns their ids.
func (e *env) bury(t tb, n int, kind string) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	for i := range n {
		d := store.DeadLetter{ID: newID(), Kind: kind, Ref: fmt.Sprint("ref", i), Reason: "undecodable", Payload: text("raw")}
		_, err := e.Store.Admit(t.Context(), store.Admission{Dead: []store.DeadLetter{d}})
		require.NoError(t, err)
		ids = append(ids, d.ID)
	}
	return ids
}

func (e *env) letterIDs(t tb, q store.LetterQuery) []uuid.UUID {
	t.Helper()
	got, err := e.Store.DeadLetters(t.Context(), q)
	require.NoError(t, err)
	var ids []uuid.UUID
	for _, d := range got {
		ids = append(ids, d.ID)
	}
	return ids
}

func letterPages(t *testing.T, e *env) {
	ids := append(e.bury(t, 3, store.DeadKindIngress), e.bury(t, 2, store.DeadKindRun)...)
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	require.Equal(t, newest, e.letterIDs(t, store.LetterQuery{Limit: 10}))
	require.Equal(t, newest[:2], e.letterIDs(t, store.LetterQuery{Kind: store.DeadKindRun, Limit: 10}))
	require.Equal(t, newest[:3], e.letterIDs(t, store.LetterQuery{Limit: 3}))
	require.Equal(t, newest[3:], e.letterIDs(t, store.LetterQuery{Limit: 3, Before: newest[2]}))
	require.Equal(t, newest[3:4], e.letterIDs(t, store.LetterQuery{Kind: store.DeadKindIngress, Limit: 1, Before: newest[2]}))

	_, err := e.Store.CountReplay(t.Context(), newest[1])
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{newest[0], newest[2]}, e.letterIDs(t, store.LetterQuery{Open: true, Limit: 2}))
	got := e.letters(t)
	require.Equal(t, []any{store.DeadKindIngress, "ref0", "undecodable"}, []any{got[4].Kind, got[4].Ref, got[4].Reason})
	require.JSONEq(t, string(text("raw")), string(got[4].Payload))
	require.False(t, got[4].CreatedAt.IsZero())
}

func letterReplays(t *testing.T, e *env) {
	id := e.bury(t, 1, store.DeadKindIngress)[0]
	for n := range 3 {
		got, err := e.Store.CountReplay(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []any{id, n + 1}, []any{got.ID, got.Replays})
		require.JSONEq(t, string(text("raw")), string(got.Payload), "what is replayed comes along")
		require.False(t, got.ReplayedAt.Before(got.CreatedAt))
	}
	got, err := e.Store.DeadLetter(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 3, got.Replays)
}

func letterUnknown(t *testing.T, e *env) {
	_, err := e.Store.DeadLetter(t.Context(), newID())
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = e.Store.CountReplay(t.Context(), newID())
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Empty(t, e.letters(t))
}
