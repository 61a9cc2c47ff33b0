package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func suspendCases() []testCase {
	return []testCase{
		{"suspended run waits and frees its slot", suspendWaits},
		{"suspending stores the step and asks the question", suspendStores},
		{"waking row that the worker has not seen queues the run", suspendUnseen},
		{"user message that was not seen does not wake the run", suspendUser},
		{"answer queues the run that waits", suspendAnswered},
		{"run is woken when its time has come", suspendDue},
		{"run without a time waits for ever", suspendForever},
		{"paused run is not woken", suspendPaused},
		{"suspending is fenced by generation, run and owner", suspendFenced},
		{"suspending with poison is rejected and changes nothing", suspendPoison},
	}
}

func suspendWaits(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	q := suspension(run)
	q.Kind, q.WakeAt = store.WaitTimer, at
	require.Equal(t, store.SuspendResult{Gen: 2, State: store.Waiting}, e.trySuspend(t, q))
	s := e.session(t, c)
	require.Equal(t, []any{store.Waiting, run.RunID, "", int64(2)}, []any{s.State, s.RunID, s.Owner, s.Gen})
	require.Equal(t, store.WaitTimer, s.WaitKind)
	require.True(t, at.Equal(s.WakeAt), s.WakeAt)
	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunWaiting, "", int64(1), int64(2)}, []any{r.State, r.Owner, r.FirstGen, r.LastGen})
	e.requireOff(t, run)
	running, queued, err := e.Store.Backlog(t.Context(), allPartitions())
	require.NoError(t, err)
	require.Equal(t, []int{0, 0}, []int{running, queued})
}

func suspendStores(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.row("m2", store.KindSteer))
	q := suspension(run)
	q.Messages = []store.Message{said(1, "user", "delete it", 1), said(2, "assistant", "may I?", 0)}
	q.ToolCalls = []store.ToolCall{call("c1", "unsafe", store.ToolIntent, "")}
	q.Taken = []int64{2}
	question := push("may I?")
	question.DKey = run.RunID.String() + ":c1"
	q.Replies = []store.NewReply{question}
	got := e.trySuspend(t, q)
	require.Equal(t, store.SuspendResult{Gen: 2, State: store.Waiting, FirstOut: 1}, got)
	require.Equal(t, []string{"user: delete it", "assistant: may I?"}, transcript(t, e.history(t, c, 10)))
	requireCalls(t, q.ToolCalls, e.toolCalls(t, run.RunID))
	d := e.requireDeliverable(t, sender, c.out(1), true, "the question is asked while the run waits")
	require.Equal(t, []any{question.DKey, run.RunID}, []any{d.DKey, d.RunID})

	e.admitOne(t, c.approval("m3"))
	again := e.claim(t, c, worker)
	require.Equal(t, run.RunID, again.Inbox[1].RunID)
	require.Equal(t, []any{run.RunID, int64(3), int64(1), 2}, []any{again.RunID, again.Gen, again.FirstGen, again.Attempts})
	requireCalls(t, q.ToolCalls, again.ToolCalls)
}

func suspendUnseen(t *testing.T, e *env) {
	for _, wakes := range []func(chat, string) store.AdmitMessage{chat.approval, chat.stop} {
		m := wakes(newChat(newID().String()), "m2")
		c := chat{key: m.SessionKey, skey: m.SKey}
		run := e.start(t, c, "m1")
		e.admitOne(t, m)
		q := suspension(run)
		q.WakeAt = time.Now().Add(time.Hour)
		require.Equal(t, store.SuspendResult{Gen: 2, State: store.Queued}, e.trySuspend(t, q))
		require.Equal(t, store.RunQueued, e.run(t, run.RunID).State)
		require.Len(t, e.queued(t, allPartitions(), 0), 1)
		again := e.claim(t, c, worker)
		require.Equal(t, int64(2), again.LastSeq)
		if !m.Stop {
			q = suspension(again)
			require.Equal(t, store.Waiting, e.trySuspend(t, q).State, "what was seen does not wake it again")
			continue
		}
		e.finish(t, cancelled(again, 2))
	}
}

func suspendUser(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.user("m2"), c.command("m3"))
	e.suspend(t, run)
	require.Equal(t, store.Waiting, e.admitOne(t, c.user("m4")).State)
}

func suspendAnswered(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	q := suspension(run)
	q.WakeAt = e.now(t).Add(-time.Hour)
	e.trySuspend(t, q)
	require.Equal(t, store.Admitted{Seq: 2, Gen: 3, State: store.Queued, RunID: run.RunID}, e.admitOne(t, c.approval("m2")))
	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunQueued, int64(3)}, []any{r.State, r.LastGen})
	require.Empty(t, e.wake(t, newID()), "it does not wait any more")
	again := e.claim(t, c, worker)
	e.finish(t, done(again, 2))
	e.requireTiles(t, c, run.RunID)
}

// now is the time of the store, as far as sessions tell it.
func (e *env) now(t tb) time.Time {
	t.Helper()
	c := newChat(newID().String())
	e.start(t, c, "m1")
	s := e.session(t, c)
	e.finish(t, done(store.Claimed{Fence: store.Fence{SKey: c.skey, Gen: s.Gen, RunID: s.RunID, Owner: s.Owner}, FirstGen: 1}, 1))
	return s.TouchedAt
}

func suspendDue(t *testing.T, e *env) {
	early, late := newChat("early"), newChat("late")
	runs := []store.Claimed{e.start(t, early, "m1"), e.start(t, late, "m1")}
	now := e.now(t)
	for i, run := range runs {
		q := suspension(run)
		q.WakeAt = now.Add(time.Duration(i+1) * time.Hour)
		require.Equal(t, store.Waiting, e.trySuspend(t, q).State)
	}
	e.Advance(t, 30*time.Minute)
	require.Empty(t, e.wake(t, newID(), newID()))
	e.Advance(t, time.Hour)
	require.Equal(t,
		[]store.QueuedRun{{SKey: early.skey, Tenant: tenant, Gen: 3, RunID: runs[0].RunID, RunClass: runClass}},
		e.wake(t, newID(), newID()))
	r := e.run(t, runs[0].RunID)
	require.Equal(t, []any{store.RunQueued, int64(3)}, []any{r.State, r.LastGen})
	require.Empty(t, e.wake(t, newID(), newID()))
	require.Equal(t, runs[0].RunID, e.claim(t, early, worker).RunID)
	require.Equal(t, store.Waiting, e.session(t, late).State)
}

func suspendForever(t *testing.T, e *env) {
	e.suspend(t, e.start(t, newChat("a"), "m1"))
	e.Advance(t, 1000*time.Hour)
	require.Empty(t, e.wake(t, newID()))
}

func suspendPaused(t *testing.T, e *env) {
	c := newChat("a")
	q := suspension(e.start(t, c, "m1"))
	q.WakeAt = e.now(t).Add(time.Minute)
	e.trySuspend(t, q)
	e.pause(t, c)
	e.Advance(t, time.Hour)
	require.Empty(t, e.wake(t, newID()))
	require.Equal(t, store.Queued, e.unpause(t, c).State)
}

func suspendFenced(t *testing.T, e *env) {
	c, other := newChat("a"), newChat("b")
	run, also := e.start(t, c, "m1"), e.start(t, other, "m1")
	var qs []store.Suspension
	for _, spoil := range []func(*store.Fence){
		func(f *store.Fence) { f.Gen++ },
		func(f *store.Fence) { f.RunID = newID() },
		func(f *store.Fence) { f.Owner = "worker-2/b" },
		func(f *store.Fence) { f.SKey = newChat("c").skey },
	} {
		q := suspension(run)
		q.Replies = []store.NewReply{{DKey: "q", Platform: "telegram", Parts: text("may I?")}}
		spoil(&q.Fence)
		qs = append(qs, q)
	}
	got, err := e.Store.Suspend(t.Context(), append(qs, suspension(also)))
	require.NoError(t, err)
	require.Len(t, got, len(qs)+1)
	for _, r := range got[:len(qs)] {
		require.ErrorIs(t, r.Err, store.ErrFenced)
	}
	require.Equal(t, store.SuspendResult{Gen: 2, State: store.Waiting}, got[len(qs)], "one fenced does not stop the others")
	s := e.session(t, c)
	require.Equal(t, []any{store.Running, int64(1), int64(0)}, []any{s.State, s.Gen, s.OutSeq})
	require.ErrorIs(t, e.trySuspend(t, suspension(also)).Err, store.ErrFenced, "repeated")
}

func suspendPoison(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	bad, unnamed := suspension(run), suspension(run)
	bad.Messages = []store.Message{{N: 1, Role: "user", Content: []byte(`"\u0000"`)}}
	unnamed.Replies = []store.NewReply{push("may I?")}
	for _, q := range []store.Suspension{bad, unnamed} {
		_, err := e.Store.Suspend(t.Context(), []store.Suspension{q})
		require.ErrorIs(t, err, store.ErrRejected)
	}
	require.Equal(t, store.Running, e.session(t, c).State)
	require.Equal(t, uuid.Nil, e.finish(t, done(run, 1)).RunID)
}
