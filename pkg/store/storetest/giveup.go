package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func giveUpCases() []testCase {
	return []testCase{
		{"run that is given up is dead, and the session goes on", giveUpEnds},
		{"run that is queued or waits can be given up", giveUpUnowned},
		{"run of a session that has moved on is not given up", giveUpFenced},
		{"giving up twice changes nothing", giveUpTwice},
		{"giving up with poison is rejected and ends nothing", giveUpPoison},
		{"stop is stale when nobody has ended the run", staleStopsTold},
		{"stale stops keep to the limit and the partitions", staleStopsLimit},
		{"stopped run is ended whoever owns it", endStoppedRunning},
		{"stopped run that is queued is ended as well", endStoppedQueued},
		{"run that is not stopped, or paused, is not ended", endStoppedFenced},
		{"no database session is frozen", endFrozen},
	}
}

// givingUp is the dead form of the session's run, as a sweeper would send it.
func (e *env) givingUp(t tb, c chat, to int64, replies ...store.NewReply) store.GiveUp {
	t.Helper()
	s := e.session(t, c)
	return store.GiveUp{
		SKey: c.skey, Gen: s.Gen, Owner: s.Owner, RunID: s.RunID, RunGen: e.run(t, s.RunID).FirstGen, From: s.DoneSeq + 1, To: to,
		Replies: replies, NextRunID: newID(), NextTraceparent: trace("next"), Error: "taken over too often",
		Letter: store.DeadLetter{ID: newID(), Kind: store.DeadKindRun, Ref: s.RunID.String(), Reason: "stalled", Payload: text("rows")},
	}
}

func (e *env) giveUp(t tb, g store.GiveUp) store.FinishResult {
	t.Helper()
	got, err := e.Store.GiveUp(t.Context(), g)
	require.NoError(t, err)
	return got
}

func giveUpEnds(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{
		Fence: run.Fence, RunGen: 1, Messages: []store.Message{said(1, "user", "m1", 1)},
		ToolCalls: []store.ToolCall{
			call("c1", "unsafe", store.ToolIntent, ""), call("c2", "unsafe", store.ToolIntent, ""), call("c3", "read", store.ToolIntent, ""),
		},
	})
	e.admit(t, c.stop("m2"), c.user("m3"))
	g := e.givingUp(t, c, 2, push("sorry"))
	g.Messages = []store.Message{said(2, "assistant", "sorry", 0)}
	lost := call("c1", "unsafe", store.ToolFailed, "the worker was lost during this call")
	g.Calls = []store.ToolCall{lost}
	require.Equal(t, store.FinishResult{Known: true, Gen: 2, RunID: g.NextRunID, FirstOut: 1}, e.giveUp(t, g))

	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunDead, "taken over too often", ""}, []any{r.State, r.Error, r.Owner})
	e.requireTiles(t, c, run.RunID)
	requireCalls(t, []store.ToolCall{
		lost, call("c2", "unsafe", store.ToolUnknown, ""), call("c3", "read", store.ToolFailed, ""),
	}, e.toolCalls(t, run.RunID))
	require.Equal(t, []string{"user: m1", "assistant: sorry"}, transcript(t, e.history(t, c, 10)))
	reply := e.replies(t, run.RunID)[0]
	require.Equal(t, []any{run.RunID.String() + ":1", store.OutPending}, []any{reply.DKey, reply.State})
	got := e.letters(t)
	require.Len(t, got, 1)
	require.JSONEq(t, string(g.Letter.Payload), string(got[0].Payload))
	got[0].Payload = g.Letter.Payload
	require.Equal(t, g.Letter, got[0].DeadLetter)
	require.Equal(t, store.RunDead, e.submission(t, c, "m1").Run.State)

	s := e.session(t, c)
	require.Equal(t, []any{store.Queued, g.NextRunID, uuid.Nil, 0, 0}, []any{s.State, s.RunID, s.StopRun, s.Attempt, s.Stall})
	e.requireOff(t, run)
	next := e.claim(t, c, worker)
	require.Equal(t, []int64{2, 2}, []int64{next.Gen, next.FirstGen})
	require.Equal(t, "m3", next.Inbox[0].UID)
}

func giveUpUnowned(t *testing.T, e *env) {
	queued, waiting := newChat("queued"), newChat("waiting")
	e.admitOne(t, queued.user("m1"))
	e.suspend(t, e.start(t, waiting, "m1"))
	for _, c := range []chat{queued, waiting} {
		g := e.givingUp(t, c, 1)
		require.Empty(t, g.Owner)
		require.Equal(t, store.FinishResult{Known: true, Gen: g.Gen + 1, Settled: true}, e.giveUp(t, g))
		require.Equal(t, store.RunDead, e.run(t, g.RunID).State)
		s := e.session(t, c)
		require.Equal(t, []any{store.Idle, uuid.Nil}, []any{s.State, s.RunID})
	}
	e.Advance(t, time.Hour)
	require.Empty(t, e.queued(t, allPartitions(), 0))
	require.Empty(t, e.wake(t, newID()))
}

func giveUpFenced(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	for name, spoil := range map[string]func(*store.GiveUp){
		"generation": func(g *store.GiveUp) { g.Gen++ },
		"run":        func(g *store.GiveUp) { g.RunID = newID() },
		"no run":     func(g *store.GiveUp) { g.RunID = uuid.Nil },
		"owner":      func(g *store.GiveUp) { g.Owner = "worker-1/b" },
		"no owner":   func(g *store.GiveUp) { g.Owner = "" },
		"session":    func(g *store.GiveUp) { g.SKey = newChat("b").skey },
	} {
		g := e.givingUp(t, c, 1, push("sorry"))
		spoil(&g)
		require.Equal(t, store.FinishFenced, e.giveUp(t, g).Outcome, name)
	}
	e.pause(t, c)
	require.Equal(t, store.FinishFenced, e.giveUp(t, e.givingUp(t, c, 1)).Outcome, "paused")
	require.Empty(t, e.letters(t))
	require.Equal(t, store.RunWaiting, e.run(t, run.RunID).State)

	collecting := newChat("c")
	e.admitOne(t, collecting.collected("m1"))
	g := store.GiveUp{SKey: collecting.skey, Gen: e.session(t, collecting).Gen, To: 1, Letter: store.DeadLetter{ID: newID()}}
	require.Equal(t, store.FinishFenced, e.giveUp(t, g).Outcome, "there is no run")
}

func giveUpTwice(t *testing.T, e *env) {
	c := newChat("a")
	e.start(t, c, "m1")
	g := e.givingUp(t, c, 1, push("sorry"))
	require.Equal(t, store.Finished, e.giveUp(t, g).Outcome)
	require.Equal(t, store.FinishFenced, e.giveUp(t, g).Outcome)
	require.Len(t, e.replies(t, g.RunID), 1)
	require.Len(t, e.letters(t), 1)
	e.requireTiles(t, c, g.RunID)
}

func giveUpPoison(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	for _, spoil := range []func(*store.GiveUp){
		func(g *store.GiveUp) { g.Error = "a\x00" },
		func(g *store.GiveUp) { g.Letter.Payload = []byte(`"\u0000"`) },
		func(g *store.GiveUp) { g.Calls = []store.ToolCall{{CallID: "c1", Result: []byte(`{`)}} },
	} {
		g := e.givingUp(t, c, 1)
		spoil(&g)
		_, err := e.Store.GiveUp(t.Context(), g)
		require.ErrorIs(t, err, store.ErrRejected)
	}
	require.Empty(t, e.letters(t))
	e.finish(t, done(run, 1))
}

func (e *env) staleStops(t tb, age time.Duration) []store.StaleStop {
	t.Helper()
	got, err := e.Store.StaleStops(t.Context(), allPartitions(), age, 100)
	require.NoError(t, err)
	return got
}

func staleStopsTold(t *testing.T, e *env) {
	running, queued, paused, ended, free := newChat("running"), newChat("queued"), newChat("paused"), newChat("ended"), newChat("free")
	run := e.start(t, running, "m1")
	a := e.admitOne(t, queued.user("m1"))
	e.start(t, paused, "m1")
	over := e.start(t, ended, "m1")
	e.start(t, free, "m1")
	for _, c := range []chat{running, queued, paused, ended} {
		e.admit(t, c.stop("m2"), c.user("m3"))
	}
	e.pause(t, paused)
	e.finish(t, cancelled(over, 2))
	require.Empty(t, e.staleStops(t, time.Hour))
	e.Advance(t, 2*time.Hour)
	require.ElementsMatch(t, []store.StaleStop{
		{SKey: running.skey, Gen: 1, RunID: run.RunID, State: store.Running, Owner: worker},
		{SKey: queued.skey, Gen: 1, RunID: a.RunID, State: store.Queued},
	}, e.staleStops(t, time.Hour))
	e.takeOver(t, running)
	require.Len(t, e.staleStops(t, time.Hour), 2, "a takeover does not end it")
}

func staleStopsLimit(t *testing.T, e *env) {
	a, b := newChat("a"), newChat("b")
	for _, c := range []chat{a, b} {
		e.start(t, c, "m1")
		e.admitOne(t, c.stop("m2"))
	}
	e.Advance(t, time.Minute)
	got, err := e.Store.StaleStops(t.Context(), allPartitions(), time.Second, 1)
	require.NoError(t, err)
	require.Len(t, got, 1)
	got, err = e.Store.StaleStops(t.Context(), []int{session.Partition(a.skey)}, time.Second, 10)
	require.NoError(t, err)
	require.Equal(t, a.skey, got[0].SKey)
	got, err = e.Store.StaleStops(t.Context(), nil, time.Second, 10)
	require.NoError(t, err)
	require.Empty(t, got)
}

func (e *env) endStopped(t tb, q store.QueuedStop) store.FinishResult {
	t.Helper()
	got, err := e.Store.EndStopped(t.Context(), q)
	require.NoError(t, err)
	return got
}

func endStoppedRunning(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{
		Fence: run.Fence, RunGen: 1, ToolCalls: []store.ToolCall{call("c1", "unsafe", store.ToolIntent, "")},
	})
	e.admit(t, c.stop("m2"), c.user("m3"))
	q := e.stopOf(t, c, 2, push("stopped"))
	require.Equal(t, store.FinishResult{Known: true, Gen: 2, RunID: q.NextRunID, FirstOut: 1}, e.endStopped(t, q))
	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunCancelled, ""}, []any{r.State, r.Owner})
	requireCalls(t, []store.ToolCall{call("c1", "unsafe", store.ToolUnknown, "")}, e.toolCalls(t, run.RunID))
	require.Equal(t, run.RunID.String()+":1", e.replies(t, run.RunID)[0].DKey)
	e.requireOff(t, run)
	e.requireTiles(t, c, run.RunID)
	require.Equal(t, store.FinishFenced, e.endStopped(t, q).Outcome, "repeated")
	require.Equal(t, store.FinishFenced, e.tryFinish(t, cancelled(run, 2)).Outcome, "a worker does not take it for its own")
	next := e.claim(t, c, worker)
	require.Equal(t, uuid.Nil, next.StopRun)
	require.Len(t, next.Inbox, 1)
}

func endStoppedQueued(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.user("m1"), c.stop("m2"))
	q := e.stopOf(t, c, 2)
	require.Equal(t, store.FinishResult{Known: true, Gen: 2, Settled: true}, e.endStopped(t, q))
	require.Equal(t, store.Idle, e.session(t, c).State)
	e.requireTiles(t, c, q.RunID)
}

func endStoppedFenced(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	require.Equal(t, store.FinishFenced, e.endStopped(t, e.stopOf(t, c, 1)).Outcome, "not stopped")
	e.admitOne(t, c.stop("m2"))
	other, old := e.stopOf(t, c, 2), e.stopOf(t, c, 2)
	other.RunID, old.Gen = newID(), old.Gen-1
	require.Equal(t, store.FinishFenced, e.endStopped(t, other).Outcome)
	require.Equal(t, store.FinishFenced, e.endStopped(t, old).Outcome)
	e.pause(t, c)
	require.Equal(t, store.FinishFenced, e.endStopped(t, e.stopOf(t, c, 2)).Outcome, "paused")
	require.Equal(t, store.RunWaiting, e.run(t, run.RunID).State)
	e.unpause(t, c)
	require.Equal(t, store.Finished, e.endStopped(t, e.stopOf(t, c, 2)).Outcome)
}

func endFrozen(t *testing.T, e *env) {
	n, err := e.Store.EndFrozen(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Zero(t, n)
}
