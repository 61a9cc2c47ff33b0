package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func policyCases() []testCase {
	return []testCase{
		{"every row says its kind and how far runs have come", admittedNumbers},
		{"idle session is not busy: the message begins a run, without a notice", rejectIdle},
		{"busy session refuses the message with a notice", rejectBusy},
		{"of two messages in one batch the second is refused", rejectBatch},
		{"interrupt stops the run that works, and goes on in its place", interruptRunning},
		{"interrupt queues a run that waits", interruptWaiting},
		{"interrupt of a run that waits for a worker stops nothing", interruptQueued},
		{"interrupt of an idle session begins a run", interruptIdle},
		{"interrupt of a paused session stops nothing", interruptPaused},
		{"interrupt that a suspending run has not seen queues it", interruptUnseen},
		{"second interrupt does not make the stop younger", interruptTwice},
		{"steer that wants a run signals and is covered by the next one", steerWants},
	}
}

func (c chat) rejecting(uid string) store.AdmitMessage {
	m := c.user(uid)
	n := push("busy")
	m.RejectIfBusy, m.Notice = true, &n
	return m
}

func (c chat) interrupting(uid string) store.AdmitMessage {
	m := c.user(uid)
	m.Interrupt = true
	return m
}

func (c chat) approval(uid string) store.AdmitMessage {
	m := c.row(uid, store.KindApproval)
	m.Wakes = true
	return m
}

func admittedNumbers(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	got, err := e.Store.Admit(t.Context(), store.Admission{
		Messages: []store.AdmitMessage{c.user("m2"), c.stop("m3"), c.reset("m4"), c.command("m5"), c.user("m1")},
	})
	require.NoError(t, err)
	kinds, done := []store.InboxKind{}, []int64{}
	for _, a := range got {
		kinds, done = append(kinds, a.Kind), append(done, a.DoneSeq)
	}
	require.Equal(t, []store.InboxKind{store.KindUser, store.KindStop, store.KindCommand, store.KindCommand, ""}, kinds)
	require.Equal(t, []int64{1, 1, 4, 4, 0}, done)
}

func rejectIdle(t *testing.T, e *env) {
	c := newChat("a")
	for i := range 2 {
		m := c.rejecting(uids("m", 2)[i])
		got := e.admitOne(t, m)
		require.Equal(t, store.Admitted{
			Seq: int64(i + 1), Kind: store.KindUser, Gen: int64(2*i + 1), State: store.Queued, RunID: m.RunID, Created: true,
		}, got)
		e.finish(t, done(e.claim(t, c, worker), got.Seq))
	}
	require.Zero(t, e.session(t, c).OutSeq)
}

// busy are sessions in every state but idle.
func (e *env) busy(t *testing.T) map[string]chat {
	t.Helper()
	chats := map[string]chat{}
	for _, name := range []string{"queued", "running", "waiting", "paused", "paused idle", "collecting"} {
		chats[name] = newChat(name)
	}
	e.admitOne(t, chats["queued"].user("m1"))
	e.start(t, chats["running"], "m1")
	e.suspend(t, e.start(t, chats["waiting"], "m1"))
	e.start(t, chats["paused"], "m1")
	e.pause(t, chats["paused"])
	e.answer(t, chats["paused idle"], "m1")
	e.pause(t, chats["paused idle"])
	e.admitOne(t, chats["collecting"].collected("m1"))
	return chats
}

func rejectBusy(t *testing.T, e *env) {
	for name, c := range e.busy(t) {
		before := e.session(t, c)
		got := e.admitOne(t, c.rejecting("m2"))
		require.Equal(t, store.Admitted{
			Seq: 2, Kind: store.KindRefused, Gen: before.Gen, State: before.State, RunID: before.RunID, Owner: before.Owner, OutSeq: 1,
		}, got, name)
		after := e.session(t, c)
		require.Equal(t, []int64{2, before.WantSeq, before.WakeSeq, before.CtlSeq},
			[]int64{after.LastSeq, after.WantSeq, after.WakeSeq, after.CtlSeq}, name)
		sub := e.submission(t, c, "m2")
		require.Equal(t, store.KindRefused, sub.Kind, name)
		require.Equal(t, "busy", textOf(t, sub.Notice), name)
	}
	run := e.claim(t, newChat("queued"), worker)
	require.Equal(t, store.KindRefused, run.Inbox[1].Kind)
	require.Equal(t, uuid.Nil, e.finish(t, done(run, 1)).RunID, "it wants no run")
}

func rejectBatch(t *testing.T, e *env) {
	c := newChat("a")
	got := e.admit(t, c.rejecting("m1"), c.rejecting("m2"))
	require.Equal(t, []store.InboxKind{store.KindUser, store.KindRefused}, []store.InboxKind{got[0].Kind, got[1].Kind})
	require.Equal(t, []int64{0, 1}, []int64{got[0].OutSeq, got[1].OutSeq})
	require.Equal(t, []bool{true, false}, []bool{got[0].Created, got[1].Created})
}

func interruptRunning(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	require.Equal(t,
		store.Admitted{Seq: 2, Gen: 1, State: store.Running, RunID: run.RunID, Owner: worker, StopRun: run.RunID},
		e.admitOne(t, c.interrupting("m2")))
	require.Equal(t,
		store.Signals{LastSeq: 2, CtlSeq: 2, StopRun: run.RunID},
		e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen}))
	require.Equal(t, store.FinishStopped, e.tryFinish(t, done(run, 1)).Outcome)
	e.finish(t, cancelled(run, 1))
	next := e.claim(t, c, worker)
	require.Equal(t, uuid.Nil, next.StopRun, "the stop does not reach the message itself")
	require.Equal(t, []store.InboxKind{store.KindUser}, []store.InboxKind{next.Inbox[0].Kind})
	e.finish(t, done(next, 2))
	e.requireTiles(t, c, run.RunID, next.RunID)
}

func interruptWaiting(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.suspend(t, run)
	require.Equal(t,
		store.Admitted{Seq: 2, Gen: 3, State: store.Queued, RunID: run.RunID, StopRun: run.RunID},
		e.admitOne(t, c.interrupting("m2")))
	require.Equal(t, store.RunQueued, e.run(t, run.RunID).State)
	next := e.stopQueued(t, e.stopOf(t, c, 1))
	require.Equal(t, store.Finished, next.Outcome)
	require.NotEqual(t, uuid.Nil, next.RunID)
}

func interruptQueued(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	require.Equal(t, store.Admitted{Seq: 2, Gen: 1, State: store.Queued, RunID: a.RunID}, e.admitOne(t, c.interrupting("m2")))
	require.Zero(t, e.session(t, c).CtlSeq)
	require.Len(t, e.claim(t, c, worker).Inbox, 2)
}

func interruptIdle(t *testing.T, e *env) {
	c := newChat("a")
	for i, gen := range []int64{1, 3} {
		m := c.interrupting(uids("m", 2)[i])
		require.Equal(t,
			store.Admitted{Seq: int64(i + 1), Gen: gen, State: store.Queued, RunID: m.RunID, Created: true}, e.admitOne(t, m))
		e.finish(t, done(e.claim(t, c, worker), int64(i+1)))
	}
}

func interruptPaused(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.pause(t, c)
	require.Equal(t, store.Admitted{Seq: 2, Gen: 2, State: store.Paused, RunID: run.RunID}, e.admitOne(t, c.interrupting("m2")))
}

func interruptUnseen(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.interrupting("m2"))
	require.Equal(t, store.SuspendResult{Gen: 2, State: store.Queued}, e.trySuspend(t, suspension(run)))
	require.Equal(t, run.RunID, e.claim(t, c, worker).StopRun)
}

func interruptTwice(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.interrupting("m2"))
	e.Advance(t, time.Hour)
	require.Equal(t, run.RunID, e.admitOne(t, c.interrupting("m3")).StopRun)
	require.Len(t, e.staleStops(t, time.Minute), 1)
}

func steerWants(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	m := c.row("m2", store.KindSteer)
	m.Steer, m.WantsRun = true, true
	require.Equal(t, store.Admitted{Seq: 2, Gen: 1, State: store.Running, RunID: run.RunID, Owner: worker}, e.admitOne(t, m))
	require.Equal(t, store.Signals{LastSeq: 2, CtlSeq: 2}, e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: 1}))
	next := e.finish(t, done(run, 1))
	require.NotEqual(t, uuid.Nil, next.RunID, "one that was not taken becomes the next turn")
	require.Equal(t, store.KindSteer, e.claim(t, c, worker).Inbox[0].Kind)
}
