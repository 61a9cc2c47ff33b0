package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func handoverCases() []testCase {
	return []testCase{
		{"hand-over queues the run under the next generation", handoverQueues},
		{"hand-over stores what a checkpoint stores", handoverStores},
		{"hand-over keeps stops, messages that wait and pins", handoverKeeps},
		{"hand-over is fenced by generation, run and owner", handoverFenced},
		{"hand-over repeated is fenced", handoverRepeated},
		{"one fenced hand-over does not stop the others of the call", handoverBatch},
		{"hand-over with poison is rejected and changes nothing", handoverPoison},
	}
}

func stopQueuedCases() []testCase {
	return []testCase{
		{"stopped run that is queued ends as cancelled", stopQueuedEnds},
		{"messages behind the stop get the next run", stopQueuedNext},
		{"run that is not stopped, or not queued, is left alone", stopQueuedFenced},
		{"stop of a queued run repeated changes nothing", stopQueuedRepeated},
		{"stop of a run that was handed over closes its tool calls", stopQueuedCalls},
		{"replies to a queued stop are numbered, named and traced", stopQueuedReplies},
		{"replies to a queued stop that are read are born sent", stopQueuedRead},
		{"queued stop with poison is rejected and ends nothing", stopQueuedPoison},
		{"worker does not take the cancelled run for its own commit", stopQueuedOwner},
	}
}

func (e *env) handover(t tb, cps ...store.Checkpoint) []store.HandoverResult {
	t.Helper()
	got, err := e.Store.Handover(t.Context(), cps)
	require.NoError(t, err)
	require.Len(t, got, len(cps))
	return got
}

func handoverQueues(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	require.Equal(t, []store.HandoverResult{{Gen: 2}}, e.handover(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen}))
	s := e.session(t, c)
	require.Equal(t, store.Queued, s.State)
	require.Equal(t, []int64{2, 0, 1, 0}, []int64{s.Gen, s.DoneSeq, s.LastSeq, int64(s.Attempt)})
	require.Equal(t, run.RunID, s.RunID)
	require.Empty(t, s.Owner)
	r := e.run(t, run.RunID)
	require.Equal(t, store.RunQueued, r.State)
	require.Equal(t, []int64{1, 2}, []int64{r.FirstGen, r.LastGen})
	require.Empty(t, r.Owner)
	require.Len(t, e.queued(t, allPartitions(), 0), 1)

	next := e.claim(t, c, "worker-2/b")
	require.Equal(t, []int64{2, 1, 2, 0}, []int64{next.Gen, next.FirstGen, int64(next.Attempts), int64(next.Attempt)})
	e.requireOff(t, run)
	e.finish(t, done(next, 1))
	e.requireTiles(t, c, run.RunID)
}

func handoverStores(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.users("m1", "m2")...)
	run := e.claim(t, c, worker)
	cp := store.Checkpoint{
		Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "hello", 1)},
		ToolCalls: []store.ToolCall{call("c1", "read", store.ToolIntent, ""), call("c2", "unsafe", store.ToolDone, "42")},
		Taken:     []int64{2},
	}
	require.NoError(t, e.handover(t, cp)[0].Err)
	require.Equal(t, []string{"user: hello"}, transcript(t, e.history(t, c, 10)))
	next := e.claim(t, c, "worker-2/b")
	requireCalls(t, cp.ToolCalls, next.ToolCalls)
	require.Equal(t, []uuid.UUID{uuid.Nil, run.RunID}, []uuid.UUID{next.Inbox[0].RunID, next.Inbox[1].RunID})
}

func handoverKeeps(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	pins := json.RawMessage(`{"model":"m"}`)
	claimed, err := e.Store.Claim(t.Context(), []store.ClaimRequest{
		{Fence: store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: worker}, Pins: pins},
	})
	require.NoError(t, err)
	e.takeOver(t, c)
	run := e.claim(t, c, worker)
	e.admit(t, c.stop("m2"), c.user("m3"))
	require.Equal(t, claimed[0].Gen+2, e.handover(t, store.Checkpoint{Fence: run.Fence, RunGen: 1})[0].Gen)

	next := e.claim(t, c, "worker-2/b")
	require.Equal(t, run.RunID, next.StopRun)
	require.JSONEq(t, string(pins), string(next.Pins))
	require.Equal(t, 1, next.Attempt, "the takeover counts, the hand-over does not")
	require.Len(t, next.Inbox, 3)
	require.NotEqual(t, uuid.Nil, e.finish(t, cancelled(next, 2)).RunID)
}

func handoverFenced(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	before := e.session(t, c)
	for name, fence := range stale(run.Fence) {
		got := e.handover(t, store.Checkpoint{
			Fence: fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", name, 1)},
			ToolCalls: []store.ToolCall{call("c1", "read", store.ToolIntent, "")}, Taken: []int64{1},
		})
		require.ErrorIs(t, got[0].Err, store.ErrFenced, name)
		require.Zero(t, got[0].Gen)
	}
	require.Equal(t, before, e.session(t, c))
	require.Empty(t, e.history(t, c, 10))
	require.Empty(t, e.toolCalls(t, run.RunID))
	require.Equal(t, uuid.Nil, e.find(t, c, "m1").RunID)
	e.finish(t, done(run, 1))
}

func handoverRepeated(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	cp := store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen}
	got := e.handover(t, cp, cp)
	require.Equal(t, store.HandoverResult{Gen: 2}, got[0])
	require.ErrorIs(t, got[1].Err, store.ErrFenced)
	require.ErrorIs(t, e.handover(t, cp)[0].Err, store.ErrFenced)
	require.Equal(t, int64(2), e.session(t, c).Gen)
}

func handoverBatch(t *testing.T, e *env) {
	var cps []store.Checkpoint
	var chats []chat
	for i, name := range uids("chat", 9) {
		c := newChat(name)
		run := e.start(t, c, "m1")
		cp := store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", name, 1)}}
		if i%3 == 1 {
			cp.Owner = "somebody else"
		}
		chats, cps = append(chats, c), append(cps, cp)
	}
	for i, got := range e.handover(t, cps...) {
		state, lines := store.Queued, 1
		if i%3 == 1 {
			require.ErrorIs(t, got.Err, store.ErrFenced)
			state, lines = store.Running, 0
		} else {
			require.Equal(t, store.HandoverResult{Gen: 2}, got)
		}
		require.Equal(t, state, e.session(t, chats[i]).State)
		require.Len(t, e.history(t, chats[i], 10), lines)
	}
}

func handoverPoison(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	bad := json.RawMessage(`{"text":"\u0000"}`)
	_, err := e.Store.Handover(t.Context(), []store.Checkpoint{{
		Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{{N: 1, Role: "user", Content: bad}},
	}})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Equal(t, store.Running, e.session(t, c).State)
	e.finish(t, done(run, 1))
}

// stopOf is the cancelled form for the session's queued run and the rows up to to.
func (e *env) stopOf(t tb, c chat, to int64, replies ...store.NewReply) store.QueuedStop {
	t.Helper()
	s := e.session(t, c)
	return store.QueuedStop{
		SKey: c.skey, Gen: s.Gen, RunID: s.RunID, From: s.DoneSeq + 1, To: to, Replies: replies,
		NextRunID: newID(), NextTraceparent: trace("next"),
	}
}

func (e *env) stopQueued(t tb, q store.QueuedStop) store.FinishResult {
	t.Helper()
	got, err := e.Store.StopQueued(t.Context(), q)
	require.NoError(t, err)
	return got
}

func stopQueuedEnds(t *testing.T, e *env) {
	c := newChat("a")
	first := e.answer(t, c, "m1")
	a := e.admit(t, c.user("m2"), c.stop("m3"))
	got := e.stopQueued(t, e.stopOf(t, c, 3, push("stopped")))
	require.Equal(t, store.FinishResult{Outcome: store.Finished, Known: true, Gen: 4, FirstOut: 1}, got)

	s := e.session(t, c)
	require.Equal(t, store.Idle, s.State)
	require.Equal(t, []int64{4, 3, 3, 1, 0}, []int64{s.Gen, s.DoneSeq, s.LastSeq, s.OutSeq, s.OutSent})
	require.Equal(t, []uuid.UUID{uuid.Nil, uuid.Nil}, []uuid.UUID{s.RunID, s.StopRun})
	r := e.run(t, a[0].RunID)
	require.Equal(t, store.RunCancelled, r.State)
	require.Equal(t, []int64{2, 3}, []int64{r.FromSeq, r.ToSeq})
	require.Empty(t, e.queued(t, allPartitions(), 0))
	e.requireTiles(t, c, first, a[0].RunID)
	_, ok := e.tryClaim(t, store.Fence{SKey: c.skey, Gen: a[0].Gen, RunID: a[0].RunID, Owner: worker})
	require.False(t, ok)
}

func stopQueuedNext(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admit(t, c.user("m1"), c.stop("m2"), c.user("m3"))
	q := e.stopOf(t, c, 2)
	got := e.stopQueued(t, q)
	require.Equal(t, store.FinishResult{
		Outcome: store.Finished, Known: true, Gen: 2, RunID: q.NextRunID, Settled: true,
	}, got)
	r := e.run(t, q.NextRunID)
	require.Equal(t, store.RunQueued, r.State)
	require.Equal(t, []int64{2, 2}, []int64{r.FirstGen, r.LastGen})
	require.Equal(t, []string{agent, e.session(t, c).SessionID.String()}, []string{r.AgentID, r.SessionID.String()})
	require.Len(t, e.queued(t, allPartitions(), 0), 1)

	next := e.claim(t, c, worker)
	require.Equal(t, uuid.Nil, next.StopRun)
	require.Len(t, next.Inbox, 1)
	e.finish(t, done(next, 3, push("answer")))
	e.requireTiles(t, c, a[0].RunID, q.NextRunID)
	require.Equal(t, trace("next"), e.requireDeliverable(t, sender, c.out(1), true, "the answer").Traceparent)
}

func stopQueuedFenced(t *testing.T, e *env) {
	c := newChat("a")
	fenced := store.FinishResult{Outcome: store.FinishFenced}
	e.admitOne(t, c.user("m1"))
	q := e.stopOf(t, c, 2, push("stopped"))
	require.Equal(t, fenced, e.stopQueued(t, q), "not stopped")
	e.admitOne(t, c.stop("m2"))
	for name, change := range map[string]func(*store.QueuedStop){
		"session": func(q *store.QueuedStop) { q.SKey = newChat("none").skey }, "generation": func(q *store.QueuedStop) { q.Gen++ },
		"run": func(q *store.QueuedStop) { q.RunID = newID() },
	} {
		other := q
		change(&other)
		require.Equal(t, fenced, e.stopQueued(t, other), name)
	}
	run := e.claim(t, c, worker)
	require.Equal(t, fenced, e.stopQueued(t, q), "claimed meanwhile")
	require.Equal(t, store.RunRunning, e.run(t, run.RunID).State)
	require.Zero(t, e.session(t, c).OutSeq)
	e.finish(t, cancelled(run, 2))
	require.Equal(t, fenced, e.stopQueued(t, q), "ended by its worker")
	require.Empty(t, e.replies(t, run.RunID))
}

func stopQueuedRepeated(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.user("m1"), c.stop("m2"), c.user("m3"))
	q := e.stopOf(t, c, 2, push("stopped"))
	e.stopQueued(t, q)
	before := e.session(t, c)
	require.Equal(t, store.FinishResult{Outcome: store.FinishFenced}, e.stopQueued(t, q))
	require.Equal(t, before, e.session(t, c))
	require.Len(t, e.replies(t, q.RunID), 1)
}

func stopQueuedCalls(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	require.NoError(t, e.handover(t, store.Checkpoint{
		Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "hello", 1)},
		ToolCalls: []store.ToolCall{
			call("c1", "unsafe", store.ToolIntent, ""), call("c2", "read", store.ToolIntent, ""), call("c3", "unsafe", store.ToolDone, "42"),
		},
	})[0].Err)
	e.admitOne(t, c.stop("m2"))
	require.Equal(t, store.Finished, e.stopQueued(t, e.stopOf(t, c, 2)).Outcome)
	requireCalls(t, []store.ToolCall{
		call("c1", "unsafe", store.ToolUnknown, ""), call("c2", "read", store.ToolFailed, ""), call("c3", "unsafe", store.ToolDone, "42"),
	}, e.toolCalls(t, run.RunID))
	require.Equal(t, []string{"user: hello"}, transcript(t, e.history(t, c, 10)), "what was done stays")
}

func stopQueuedReplies(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1", push("answer"))
	a := e.admit(t, c.user("m2"), c.stop("m3"))
	named := push("two")
	named.DKey = "own-key"
	got := e.stopQueued(t, e.stopOf(t, c, 3, push("one"), named))
	require.Equal(t, int64(2), got.FirstOut)
	require.False(t, got.Settled)
	replies := e.replies(t, a[0].RunID)
	require.Equal(t, a[0].RunID.String()+":1", replies[0].DKey)
	require.Equal(t, []any{int64(2), "one", store.OutPending}, []any{replies[0].OutSeq, textOf(t, replies[0].Parts), replies[0].State})
	e.Advance(t, 10*time.Second)
	require.Len(t, e.due(t, 100), 3, "the sweeper rings them")
	d := e.requireDeliverable(t, sender, c.outAfter(3, 2), true, "the second reply")
	require.Equal(t, []string{"own-key", trace("m2"), "telegram"}, []string{d.DKey, d.Traceparent, d.Platform})
	require.Equal(t, a[0].RunID, d.RunID)
	require.JSONEq(t, `{"text":"chat"}`, string(d.Target))
}

func stopQueuedRead(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.user("m1"), c.stop("m2"))
	got := e.stopQueued(t, e.stopOf(t, c, 2, readable("one"), readable("two")))
	require.True(t, got.Settled)
	require.Equal(t, []int64{2, 2}, []int64{e.session(t, c).OutSeq, e.session(t, c).OutSent})

	e.answer(t, c, "m3", push("answer"))
	e.admit(t, c.user("m4"), c.stop("m5"))
	got = e.stopQueued(t, e.stopOf(t, c, 5, readable("three")))
	require.False(t, got.Settled, "the answer still waits")
	require.Equal(t, []int64{4, 2}, []int64{e.session(t, c).OutSeq, e.session(t, c).OutSent})
}

func stopQueuedPoison(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m0", store.NewReply{DKey: "own-key", Platform: "telegram"})
	e.admit(t, c.user("m1"), c.stop("m2"), c.user("m3"))
	for name, change := range map[string]func(*store.QueuedStop){
		"parts":       func(q *store.QueuedStop) { q.Replies[0].Parts = json.RawMessage(`{"text":"\u0000"}`) },
		"trace":       func(q *store.QueuedStop) { q.NextTraceparent = "\x00" },
		"dkey in use": func(q *store.QueuedStop) { q.Replies[0].DKey = "own-key" },
		"next run":    func(q *store.QueuedStop) { q.NextRunID = q.RunID },
	} {
		q := e.stopOf(t, c, 3, push("stopped"))
		change(&q)
		_, err := e.Store.StopQueued(t.Context(), q)
		require.ErrorIs(t, err, store.ErrRejected, name)
		require.Equal(t, store.Queued, e.session(t, c).State, name)
	}
	require.Equal(t, store.Finished, e.stopQueued(t, e.stopOf(t, c, 3, push("stopped"))).Outcome)
}

func stopQueuedOwner(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.takeOver(t, c)
	e.admitOne(t, c.stop("m2"))
	e.stopQueued(t, e.stopOf(t, c, 2))
	require.Empty(t, e.run(t, run.RunID).Owner)
	e.requireOff(t, run)
}
