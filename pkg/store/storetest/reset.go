package storetest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func resetCases() []testCase {
	return []testCase{
		{"reset of an unknown session opens it idle", resetUnknown},
		{"reset of an idle session: the next run covers the row", resetIdle},
		{"reset of a running session fences its worker off", resetRunning},
		{"reset covers messages that wait", resetCovers},
		{"reset closes open tool calls", resetClosesCalls},
		{"reset of a queued session: nobody claims the run", resetQueued},
		{"reset of a waiting session: nothing wakes the run", resetWaiting},
		{"reset of a paused session leaves it paused", resetPaused},
		{"reset of a paused session without a run cancels what waits", resetPausedWaiting},
		{"reset covers rows that wanted no run", resetIdleCovered},
		{"reset takes back a stop", resetStopped},
		{"reset counts attempts anew", resetAttempts},
		{"duplicate reset does not reach the next run", resetDuplicate},
		{"reset between messages of one batch parts them", resetInBatch},
		{"reset answers with a notice in the order of the outbox", resetNotice},
		{"notice of a reset that is read is born sent", resetNoticeRead},
		{"conversations end one after another", resetConversations},
		{"reset without fresh ids is rejected", resetIDs},
	}
}

// reset is /new.
func (c chat) reset(uid string) store.AdmitMessage {
	m := c.command(uid)
	m.Reset = true
	return m
}

// requireTiles checks I5: the ranges of final runs follow each other and end at done_seq.
func (e *env) requireTiles(t tb, c chat, ids ...uuid.UUID) {
	t.Helper()
	from, gen := int64(1), int64(0)
	for _, id := range ids {
		r := e.run(t, id)
		require.True(t, r.State.Final())
		require.Equal(t, from, r.FromSeq, "ranges tile the inbox")
		require.GreaterOrEqual(t, r.ToSeq, r.FromSeq)
		require.Greater(t, r.FirstGen, gen, "generations rise")
		require.False(t, r.EndedAt.IsZero())
		from, gen = r.ToSeq+1, r.FirstGen
	}
	require.Equal(t, from-1, e.session(t, c).DoneSeq)
}

func resetUnknown(t *testing.T, e *env) {
	c := newChat("a")
	m := c.reset("m1")
	require.Equal(t, store.Admitted{Seq: 1, Gen: 1, State: store.Idle, OutSeq: 1}, e.admitOne(t, m))
	s := e.session(t, c)
	require.Equal(t, []string{tenant, c.key, agent, runClass}, []string{s.Tenant, s.SessionKey, s.AgentID, s.RunClass})
	require.Equal(t, m.SessionID, s.SessionID)
	require.Equal(t, []int64{1, 0, 0, 0}, []int64{s.LastSeq, s.DoneSeq, s.WantSeq, s.OutSent})

	next := e.start(t, c, "m2")
	require.Equal(t, int64(2), next.Gen)
	require.Len(t, next.Inbox, 2)
	e.finish(t, done(next, 2))
	e.requireTiles(t, c, next.RunID)
}

func resetIdle(t *testing.T, e *env) {
	c := newChat("a")
	e.converse(t, c, 1)
	old := e.session(t, c)
	m := c.reset("m1")
	require.Equal(t, store.Admitted{Seq: 2, Gen: 3, State: store.Idle, OutSeq: 1}, e.admitOne(t, m))
	s := e.session(t, c)
	require.Equal(t, []int64{2, 1, 1}, []int64{s.LastSeq, s.DoneSeq, s.WantSeq}, "nothing waited")
	require.Equal(t, m.SessionID, s.SessionID)
	require.Equal(t, store.KindCommand, e.submission(t, c, "m1").Kind)
	require.Equal(t, uuid.Nil, e.submission(t, c, "m1").Run.ID)
	require.Empty(t, e.history(t, c, 10))

	next := e.start(t, c, "m2")
	require.Equal(t, m.SessionID, next.SessionID)
	require.Equal(t, m.SessionID, e.run(t, next.RunID).SessionID)
	require.Len(t, next.Inbox, 2, "the next run covers the row")
	f := done(next, 3)
	f.Messages = []store.Message{said(1, "user", "new", 3)}
	e.finish(t, f)
	require.Equal(t, []string{"user: new"}, transcript(t, e.history(t, c, 10)))
	before, err := e.Store.History(t.Context(), c.skey, old.SessionID, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"user: q0", "assistant: a0"}, transcript(t, before))
}

func resetRunning(t *testing.T, e *env) {
	c := newChat("a")
	first := e.answer(t, c, "m1")
	run := e.start(t, c, "m2")
	m := c.reset("m3")
	require.Equal(t, store.Admitted{Seq: 3, Gen: 4, State: store.Idle, OutSeq: 1, Fenced: run.RunID}, e.admitOne(t, m))
	s := e.session(t, c)
	require.Equal(t, []int64{3, 3, 2, 4}, []int64{s.LastSeq, s.DoneSeq, s.WantSeq, s.Gen})
	require.Equal(t, uuid.Nil, s.RunID)
	require.Empty(t, s.Owner)
	require.Equal(t, m.SessionID, s.SessionID)

	r := e.run(t, run.RunID)
	require.Equal(t, store.RunCancelled, r.State)
	require.Equal(t, []int64{2, 3, 3}, []int64{r.FromSeq, r.ToSeq, r.FirstGen})
	require.Equal(t, run.SessionID, r.SessionID)
	require.Empty(t, r.Owner)
	e.requireTiles(t, c, first, run.RunID)
	e.requireOff(t, run)

	next := e.start(t, c, "m4")
	require.Len(t, next.Inbox, 1, "the new conversation begins behind the row")
	e.requireOff(t, run)
	e.finish(t, done(next, 4))
	e.requireTiles(t, c, first, run.RunID, next.RunID)
}

// requireOff checks that the former owner of a run can write nothing and takes nothing for its own.
func (e *env) requireOff(t *testing.T, run store.Claimed) {
	t.Helper()
	before, err := e.Store.Session(t.Context(), run.SKey)
	require.NoError(t, err)
	replies := e.replies(t, run.RunID)
	history, err := e.Store.RunMessages(t.Context(), run.RunID)
	require.NoError(t, err)
	late := []store.Message{said(99, "assistant", "late", 0)}
	cp := store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: late}
	require.ErrorIs(t, e.tryCheckpoint(t, cp).Err, store.ErrFenced)
	got, err := e.Store.Handover(t.Context(), []store.Checkpoint{cp})
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, store.ErrFenced)
	for _, state := range []store.RunState{store.RunDone, store.RunFailed, store.RunCancelled} {
		f := done(run, before.LastSeq, push("late"))
		f.State, f.Messages = state, late
		require.Equal(t, store.FinishResult{Outcome: store.FinishFenced}, e.tryFinish(t, f), "%s", state)
	}
	after, err := e.Store.Session(t.Context(), run.SKey)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, replies, e.replies(t, run.RunID))
	msgs, err := e.Store.RunMessages(t.Context(), run.RunID)
	require.NoError(t, err)
	require.Equal(t, history, msgs)
}

func resetCovers(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.users("m2", "m3")...)
	require.Equal(t, store.Idle, e.admitOne(t, c.reset("m4")).State)
	require.Empty(t, e.queued(t, allPartitions(), 0))
	for _, uid := range []string{"m1", "m2", "m3", "m4"} {
		got := e.submission(t, c, uid)
		require.Equal(t, run.RunID, got.Run.ID)
		require.Equal(t, store.RunCancelled, got.Run.State)
	}
	next := e.start(t, c, "m5")
	require.Equal(t, uuid.Nil, e.finish(t, done(next, 5)).RunID, "nothing that was covered wants a run")
	e.requireTiles(t, c, run.RunID, next.RunID)
}

func resetClosesCalls(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, ToolCalls: []store.ToolCall{
		call("c1", "unsafe", store.ToolIntent, ""), call("c2", "read", store.ToolIntent, ""),
		call("c3", "unsafe", store.ToolDone, "42"),
	}})
	other := newChat("b")
	bystander := e.start(t, other, "m1")
	e.checkpoint(t, store.Checkpoint{Fence: bystander.Fence, RunGen: 1, ToolCalls: []store.ToolCall{call("c1", "unsafe", store.ToolIntent, "")}})
	e.admitOne(t, c.reset("m2"))
	requireCalls(t, []store.ToolCall{
		call("c1", "unsafe", store.ToolUnknown, ""), call("c2", "read", store.ToolFailed, ""),
		call("c3", "unsafe", store.ToolDone, "42"),
	}, e.toolCalls(t, run.RunID))
	requireCalls(t, []store.ToolCall{call("c1", "unsafe", store.ToolIntent, "")}, e.toolCalls(t, bystander.RunID))
}

func resetQueued(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	require.Equal(t, a.RunID, e.admitOne(t, c.reset("m2")).Fenced)
	require.Empty(t, e.queued(t, allPartitions(), 0))
	running, queued, err := e.Store.Backlog(t.Context(), allPartitions())
	require.NoError(t, err)
	require.Equal(t, []int{0, 0}, []int{running, queued})
	_, ok := e.tryClaim(t, store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: worker})
	require.False(t, ok)
	require.Equal(t, int64(2), e.run(t, a.RunID).ToSeq)
	e.requireTiles(t, c, a.RunID)
}

func resetWaiting(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.suspend(t, run)
	require.Equal(t, store.Admitted{Seq: 2, Gen: 3, State: store.Idle, OutSeq: 1, Fenced: run.RunID}, e.admitOne(t, c.reset("m2")))
	approval := c.row("m3", store.KindApproval)
	approval.Wakes = true
	require.Equal(t, store.Admitted{Seq: 3, Gen: 3, State: store.Idle}, e.admitOne(t, approval))
	require.Equal(t, store.RunCancelled, e.run(t, run.RunID).State)
	e.requireTiles(t, c, run.RunID)
}

func resetPaused(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.pause(t, c)
	e.admitOne(t, c.user("m2"))
	m := c.reset("m3")
	require.Equal(t, store.Admitted{Seq: 3, Gen: 3, State: store.Paused, OutSeq: 1, Fenced: run.RunID}, e.admitOne(t, m))
	s := e.session(t, c)
	require.Equal(t, []int64{3, 2}, []int64{s.DoneSeq, s.WantSeq})
	require.Equal(t, []uuid.UUID{uuid.Nil, m.SessionID}, []uuid.UUID{s.RunID, s.SessionID})
	e.requireTiles(t, c, run.RunID)

	require.Equal(t, store.Admitted{Seq: 4, Gen: 4, State: store.Paused, OutSeq: 2}, e.admitOne(t, c.reset("m4")))
	require.Equal(t, int64(3), e.session(t, c).DoneSeq, "nothing waited")
}

func resetPausedWaiting(t *testing.T, e *env) {
	c := newChat("a")
	first := e.answer(t, c, "m1")
	e.pause(t, c)
	e.admit(t, c.users("m2", "m3")...)
	old := e.session(t, c)
	m := c.reset("m4")
	require.Equal(t, store.Admitted{Seq: 4, Gen: 4, State: store.Paused, OutSeq: 1}, e.admitOne(t, m), "no run was fenced off")

	r := e.run(t, m.RunID)
	require.Equal(t, store.RunCancelled, r.State)
	require.Equal(t, []int64{2, 4, 4}, []int64{r.FromSeq, r.ToSeq, r.FirstGen})
	require.Equal(t, old.SessionID, r.SessionID, "they were said in the old conversation")
	require.Equal(t, []string{agent, c.skey}, []string{r.AgentID, r.SKey})
	require.Equal(t, m.RunID, e.submission(t, c, "m3").Run.ID)
	require.Equal(t, uuid.Nil, e.session(t, c).RunID)
	e.requireTiles(t, c, first, m.RunID)
}

func resetIdleCovered(t *testing.T, e *env) {
	c := newChat("a")
	first := e.answer(t, c, "m1")
	e.admitOne(t, c.row("m2", store.KindSystem))
	m := c.reset("m3")
	got := e.admitOne(t, m)
	require.Equal(t, []any{store.Idle, uuid.Nil, false}, []any{got.State, got.Fenced, got.Created})
	require.Equal(t, []uuid.UUID{m.RunID, m.RunID}, []uuid.UUID{e.submission(t, c, "m2").Run.ID, e.submission(t, c, "m3").Run.ID})
	next := e.start(t, c, "m4")
	require.Len(t, next.Inbox, 1, "the new conversation is not told what was meant for the old one")
	e.finish(t, done(next, 4))
	e.requireTiles(t, c, first, m.RunID, next.RunID)
}

func resetStopped(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.stop("m2"), c.reset("m3"))
	require.Equal(t, uuid.Nil, e.session(t, c).StopRun)
	e.requireOff(t, run)
	next := e.start(t, c, "m4")
	require.Equal(t, uuid.Nil, next.StopRun)
	e.finish(t, done(next, 4))
}

func resetAttempts(t *testing.T, e *env) {
	c := newChat("a")
	e.start(t, c, "m1")
	next := e.retake(t, c)
	require.Equal(t, 1, next.Attempt)
	e.admitOne(t, c.reset("m2"))
	require.Zero(t, e.session(t, c).Attempt)
	e.requireOff(t, next)
}

func resetDuplicate(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.reset("m1"))
	run := e.start(t, c, "m2")
	before := e.session(t, c)
	require.Equal(t, store.Admitted{Duplicate: true}, e.admitOne(t, c.reset("m1")))
	got := e.admit(t, c.reset("m1"), c.user("m3"), c.reset("m1"))
	require.Equal(t, []bool{true, false, true}, []bool{got[0].Duplicate, got[1].Duplicate, got[2].Duplicate})
	after := e.session(t, c)
	require.Equal(t, []any{before.Gen, before.SessionID, before.OutSeq}, []any{after.Gen, after.SessionID, after.OutSeq})
	require.Len(t, e.conversations(t, c), 1)
	e.finish(t, done(run, 2))
}

func resetInBatch(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	m := c.reset("m3")
	got := e.admit(t, c.user("m2"), m, c.user("m4"), c.user("m5"))
	require.Equal(t, []uuid.UUID{uuid.Nil, run.RunID, uuid.Nil}, []uuid.UUID{got[0].Fenced, got[1].Fenced, got[2].Fenced})
	require.Equal(t, []bool{false, false, true, false}, []bool{got[0].Created, got[1].Created, got[2].Created, got[3].Created})
	require.Equal(t, run.RunID, e.submission(t, c, "m2").Run.ID)
	next := e.claim(t, c, worker)
	require.Equal(t, m.SessionID, next.SessionID)
	require.Equal(t, []int64{4, 5}, []int64{next.Inbox[0].Seq, next.Inbox[1].Seq})
	e.finish(t, done(next, 5))
	e.requireTiles(t, c, run.RunID, next.RunID)
}

func resetNotice(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1", push("answer"))
	e.start(t, c, "m2")
	require.Equal(t, int64(2), e.admitOne(t, c.reset("m3")).OutSeq)
	require.Equal(t, []int64{2, 0}, []int64{e.session(t, c).OutSeq, e.session(t, c).OutSent})
	require.Equal(t, "notice m3", textOf(t, e.submission(t, c, "m3").Notice))
	d := e.requireDeliverable(t, sender, c.outAfter(2, 1), true, "behind the answer")
	require.Equal(t, "m3:command", d.DKey)
	require.Equal(t, uuid.Nil, d.RunID)
	require.JSONEq(t, `{"text":"chat"}`, string(d.Target))
	require.Equal(t, trace("m3"), d.Traceparent)

	silent := c.reset("m4")
	silent.Notice = nil
	require.Zero(t, e.admitOne(t, silent).OutSeq)
	require.Equal(t, int64(2), e.session(t, c).OutSeq)
}

func resetNoticeRead(t *testing.T, e *env) {
	c := newChat("a")
	m := c.reset("m1")
	m.Notice.Read = true
	require.Equal(t, int64(1), e.admitOne(t, m).OutSeq)
	require.Equal(t, []int64{1, 1}, []int64{e.session(t, c).OutSeq, e.session(t, c).OutSent})
	e.requireDeliverable(t, sender, c.out(1), false, "nobody sends it")

	e.answer(t, c, "m2", push("answer"))
	m = c.reset("m3")
	m.Notice.Read = true
	require.Equal(t, int64(3), e.admitOne(t, m).OutSeq)
	require.Equal(t, int64(1), e.session(t, c).OutSent, "the answer still waits")
}

func resetConversations(t *testing.T, e *env) {
	c, other := newChat("a"), newChat("b")
	e.answer(t, c, "m1")
	e.answer(t, other, "m1")
	first := e.session(t, c).SessionID
	one, two := c.reset("m2"), c.reset("m3")
	e.admitOne(t, one)
	requireConversations(t, e.conversations(t, c), one.SessionID, first)
	e.admitOne(t, two)
	requireConversations(t, e.conversations(t, c), two.SessionID, one.SessionID, first)
	requireConversations(t, e.conversations(t, other), e.session(t, other).SessionID)

	opened := newChat("c")
	m := opened.reset("m1")
	e.admitOne(t, m)
	requireConversations(t, e.conversations(t, opened), m.SessionID)
}

func resetIDs(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	m := c.reset("m2")
	m.SessionID = uuid.Nil
	_, err := e.Store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
	require.ErrorIs(t, err, store.ErrRejected)
	m.SessionID = e.session(t, c).SessionID
	_, err = e.Store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Equal(t, store.Running, e.session(t, c).State)
	require.Len(t, e.conversations(t, c), 1)
	e.finish(t, done(run, 1))
}
