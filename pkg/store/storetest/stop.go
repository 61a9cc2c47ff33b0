package storetest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func stopCases() []testCase {
	return []testCase{
		{"stop of a running run names it", stopRunning},
		{"stop of a queued run names it and leaves it queued", stopOfQueued},
		{"stop of a waiting run queues it", stopWaiting},
		{"stop of a paused run names it and leaves it paused", stopPaused},
		{"stop of an idle session names no run", stopIdle},
		{"second stop names the same run", stopTwice},
		{"duplicate stop does not reach the next run", stopDuplicate},
		{"stop and message in one batch: the message waits", stopThenMessage},
		{"notice of a stop that finds nothing to stop", stopNoticeIdle},
		{"no notice of a stop that finds a run", stopNoticeBusy},
		{"message that makes a run has found none before", stopNoticeWanted},
		{"notice that is not written settles nothing", stopNoticeRead},
	}
}

func stopRunning(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	require.Equal(t,
		store.Admitted{Seq: 2, Gen: 1, State: store.Running, RunID: run.RunID, Owner: worker, StopRun: run.RunID},
		e.admitOne(t, c.stop("m2")))
	require.Equal(t,
		store.Signals{LastSeq: 2, CtlSeq: 2, StopRun: run.RunID},
		e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen}))
}

func stopOfQueued(t *testing.T, e *env) {
	c := newChat("a")
	first := e.admitOne(t, c.user("m1"))
	got := e.admitOne(t, c.stop("m2"))
	require.Equal(t, store.Admitted{Seq: 2, Gen: 1, State: store.Queued, RunID: first.RunID, StopRun: first.RunID}, got)
	claimed := e.claim(t, c, worker)
	require.Equal(t, first.RunID, claimed.StopRun, "the worker that claims it learns of the stop")
	require.Equal(t, int64(2), claimed.CtlSeq)
}

func stopIdle(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	require.Equal(t, store.Admitted{Seq: 2, Gen: 2, State: store.Idle}, e.admitOne(t, c.stop("m2")))
	require.Equal(t, store.Admitted{Seq: 1, State: store.Idle}, e.admitOne(t, newChat("b").stop("m1")))

	e.admitOne(t, c.user("m3"))
	require.Equal(t, uuid.Nil, e.claim(t, c, worker).StopRun, "a stop does not reach a later run")
}

func stopTwice(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.stop("m2"))
	got := e.admitOne(t, c.stop("m3"))
	require.Equal(t, run.RunID, got.StopRun)
	require.Equal(t, int64(3), e.session(t, c).CtlSeq)
}

func stopThenMessage(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	got := e.admit(t, c.stop("m2"), c.user("m3"))
	require.Equal(t, []uuid.UUID{run.RunID, run.RunID}, []uuid.UUID{got[0].StopRun, got[1].StopRun})
	require.Equal(t, run.RunID, got[1].RunID)

	next := e.finish(t, cancelled(run, 2))
	require.NotEqual(t, uuid.Nil, next.RunID)
	require.Equal(t, uuid.Nil, e.claim(t, c, worker).StopRun)
}

func stopWaiting(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.suspend(t, run)
	stop := c.stop("m2")
	stop.Wakes = false
	require.Equal(t,
		store.Admitted{Seq: 2, Gen: 3, State: store.Queued, RunID: run.RunID, StopRun: run.RunID},
		e.admitOne(t, stop), "a stop wakes without being told to")
	require.Equal(t, int64(2), e.session(t, c).WakeSeq)
	r := e.run(t, run.RunID)
	require.Equal(t, store.RunQueued, r.State)
	require.Equal(t, []int64{1, 3}, []int64{r.FirstGen, r.LastGen})
	require.Equal(t, run.RunID, e.claim(t, c, worker).StopRun)
}

func stopPaused(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.pause(t, c)
	require.Equal(t,
		store.Admitted{Seq: 2, Gen: 2, State: store.Paused, RunID: run.RunID, StopRun: run.RunID}, e.admitOne(t, c.stop("m2")))

	b := newChat("b")
	e.answer(t, b, "m1")
	e.pause(t, b)
	require.Equal(t, store.Admitted{Seq: 2, Gen: 3, State: store.Paused}, e.admitOne(t, b.stop("m2")))
}

func stopDuplicate(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.stop("m2"), c.user("m3"))
	e.finish(t, cancelled(run, 2))
	next := e.claim(t, c, worker)
	before := e.session(t, c)
	require.Equal(t, store.Admitted{Duplicate: true}, e.admitOne(t, c.stop("m2")))
	require.Equal(t, before, e.session(t, c))
	e.finish(t, done(next, 3))
}

// politeStop says so if there is nothing to stop.
func (c chat) politeStop(uid string) store.AdmitMessage {
	m := c.stop(uid)
	n := push("nothing is running")
	m.Notice, m.NoticeIfIdle = &n, true
	return m
}

func stopNoticeIdle(t *testing.T, e *env) {
	c := newChat("a")
	require.Equal(t, store.Admitted{Seq: 1, State: store.Idle, OutSeq: 1}, e.admitOne(t, c.politeStop("m1")), "first of its session")
	e.answer(t, c, "m2")
	require.Equal(t, store.Admitted{Seq: 3, Gen: 2, State: store.Idle, OutSeq: 2}, e.admitOne(t, c.politeStop("m3")))
	e.pause(t, c)
	require.Equal(t, store.Admitted{Seq: 4, Gen: 3, State: store.Paused, OutSeq: 3}, e.admitOne(t, c.politeStop("m4")))

	require.Equal(t, int64(3), e.session(t, c).OutSeq)
	d, ok := e.deliver(t, sender, store.DeliveryClaim{SKey: c.skey, OutSeq: 3, Sent: 2})
	require.True(t, ok)
	require.Equal(t, "m4:stop", d.DKey)
	require.Equal(t, "nothing is running", textOf(t, d.Parts))
}

func stopNoticeBusy(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.user("m1"))
	got := e.admitOne(t, c.politeStop("m2"))
	require.Equal(t, []any{store.Queued, int64(0)}, []any{got.State, got.OutSeq})
	e.claim(t, c, worker)
	got = e.admitOne(t, c.politeStop("m3"))
	require.Equal(t, []any{store.Running, int64(0)}, []any{got.State, got.OutSeq})
	e.pause(t, c)
	got = e.admitOne(t, c.politeStop("m4"))
	require.Equal(t, []any{store.Paused, int64(0)}, []any{got.State, got.OutSeq})
	e.unpause(t, c)
	e.suspend(t, e.claim(t, c, worker))
	got = e.admitOne(t, c.politeStop("m5"))
	require.Equal(t, []any{store.Queued, int64(0)}, []any{got.State, got.OutSeq}, "the stop wakes it")

	require.Zero(t, e.session(t, c).OutSeq)
	require.Empty(t, e.submission(t, c, "m2").Notice)
	require.Equal(t, int64(1), e.admitOne(t, c.command("m6")).OutSeq, "no number is used up")
}

func stopNoticeWanted(t *testing.T, e *env) {
	for i, c := range []chat{newChat("new"), newChat("idle")} {
		if i == 1 {
			e.answer(t, c, "m1")
		}
		m := c.user("m2")
		n := push("a new run begins")
		m.Notice, m.NoticeIfIdle = &n, true
		got := e.admitOne(t, m)
		require.Equal(t, []any{true, int64(1)}, []any{got.Created, got.OutSeq})

		m = c.user("m3")
		m.Notice, m.NoticeIfIdle = &n, true
		require.Zero(t, e.admitOne(t, m).OutSeq)
		require.Equal(t, int64(1), e.session(t, c).OutSeq)
	}
}

func stopNoticeRead(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	stop := c.politeStop("m2")
	stop.Notice.Read = true
	require.Zero(t, e.admitOne(t, stop).OutSeq)
	require.Equal(t, []int64{0, 0}, []int64{e.session(t, c).OutSeq, e.session(t, c).OutSent})

	e.finish(t, cancelled(run, 2))
	stop = c.politeStop("m3")
	stop.Notice.Read = true
	require.Equal(t, int64(1), e.admitOne(t, stop).OutSeq)
	require.Equal(t, []int64{1, 1}, []int64{e.session(t, c).OutSeq, e.session(t, c).OutSent})
}
