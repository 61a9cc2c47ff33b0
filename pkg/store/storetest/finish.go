package storetest

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func finishCases() []testCase {
	return []testCase{
		{"finish with nothing behind it leaves the session idle", finishIdle},
		{"finish queues the next run for rows behind it", finishNext},
		{"message admitted while the run ends is not forgotten", finishWantRace},
		{"rows that want no run start none", finishCovered},
		{"finish that leaves taken rows uncovered starts a run", finishPartRange},
		{"finish stores error, usage and messages", finishStores},
		{"finish is fenced by generation, run and owner", finishFenced},
		{"finish of a run that was taken over is fenced", finishTakenOver},
		{"stop comes first: nothing is written, the cancelled form ends the run", finishStopped},
		{"cancelled form closes open tool calls", finishClosesCalls},
		{"cancelled form needs no stop", finishCancelledUnasked},
		{"stop of an earlier run does not stop this one", finishStopOfAnother},
		{"finish repeated by its owner had committed", finishRepeated},
		{"finish repeated while the next run is on", finishRepeatedLater},
		{"replies are numbered and named", finishReplies},
		{"finish without replies", finishNoReplies},
		{"replies that are read are born sent and settled", finishRead},
		{"replies that are read wait behind one that is pending", finishReadBehind},
		{"reply that is pushed behind one that is read keeps all unsettled", finishMixed},
		{"many sessions in one call", finishMany},
		{"results are in the order of the call, whatever their outcome", finishOutcomes},
		{"two finishes of one run in one call: one is written", finishTwiceInOneCall},
		{"finish with poison is rejected and writes nothing", finishPoison},
		{"reply with a dkey that is in use is rejected", finishSameDKey},
	}
}

func finishIdle(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	got := e.finish(t, done(run, 1, push("answer")))
	require.Equal(t, store.FinishResult{Outcome: store.Finished, Known: true, Gen: 2, FirstOut: 1}, got)

	s := e.session(t, c)
	require.Equal(t, store.Idle, s.State)
	require.Equal(t, []int64{2, 1, 1, 1, 0}, []int64{s.Gen, s.DoneSeq, s.LastSeq, s.OutSeq, s.OutSent})
	require.Equal(t, uuid.Nil, s.RunID)
	require.Empty(t, s.Owner)

	r := e.run(t, run.RunID)
	require.Equal(t, store.RunDone, r.State)
	require.Equal(t, worker, r.Owner)
	require.Equal(t, []int64{1, 1}, []int64{r.FromSeq, r.ToSeq})
	require.False(t, r.EndedAt.IsZero())
}

func finishNext(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.users("m2", "m3")...)
	f := done(run, 1)
	got := e.finish(t, f)
	require.Equal(t, f.NextRunID, got.RunID)
	require.Equal(t, int64(2), got.Gen)

	s := e.session(t, c)
	require.Equal(t, store.Queued, s.State)
	require.Equal(t, f.NextRunID, s.RunID)
	require.Empty(t, s.Owner)
	require.Equal(t, int64(1), s.DoneSeq)
	r := e.run(t, f.NextRunID)
	require.Equal(t, store.RunQueued, r.State)
	require.Equal(t, []int64{2, 2}, []int64{r.FirstGen, r.LastGen})
	require.Equal(t, s.SessionID, r.SessionID)
	require.Equal(t, agent, r.AgentID)

	next := e.claim(t, c, worker)
	require.Len(t, next.Inbox, 2)
	e.finish(t, done(next, 3, push("answer")))
	d, ok := e.deliver(t, sender, store.DeliveryClaim{SKey: c.skey, OutSeq: 1})
	require.True(t, ok)
	require.Equal(t, trace("next"), d.Traceparent, "the next run is traced under the message that it was made for")
}

func finishWantRace(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	f := done(run, run.LastSeq)
	late := e.admitOne(t, c.user("m2"))
	require.False(t, late.Created)
	require.Equal(t, f.NextRunID, e.finish(t, f).RunID)

	run = e.claim(t, c, worker)
	require.Equal(t, uuid.Nil, e.finish(t, done(run, run.LastSeq)).RunID)
	require.True(t, e.admitOne(t, c.user("m3")).Created, "behind the finish admission makes the run")
}

func finishCovered(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.command("m2"), c.row("m3", store.KindRefused))
	require.Equal(t, uuid.Nil, e.finish(t, done(run, 1)).RunID)
	s := e.session(t, c)
	require.Equal(t, store.Idle, s.State)
	require.Equal(t, []int64{3, 1}, []int64{s.LastSeq, s.DoneSeq})

	e.admitOne(t, c.user("m4"))
	require.Len(t, e.claim(t, c, worker).Inbox, 3, "the next run covers them")
}

func finishPartRange(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.users("m1", "m2", "m3")...)
	run := e.claim(t, c, worker)
	require.Len(t, run.Inbox, 3)
	require.NotEqual(t, uuid.Nil, e.finish(t, done(run, 2)).RunID)
	next := e.claim(t, c, worker)
	require.Len(t, next.Inbox, 1)
	require.Equal(t, int64(3), next.Inbox[0].Seq)
}

func finishStores(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	f := done(run, 1)
	f.State, f.Error, f.Usage = store.RunFailed, "model unavailable", json.RawMessage(`{"input_tokens":7}`)
	f.Messages = []store.Message{said(1, "user", "hello", 1), said(2, "assistant", "sorry", 0)}
	e.finish(t, f)
	r := e.run(t, run.RunID)
	require.Equal(t, store.RunFailed, r.State)
	require.Equal(t, "model unavailable", r.Error)
	require.JSONEq(t, `{"input_tokens":7}`, string(r.Usage))
	require.Equal(t, []string{"user: hello", "assistant: sorry"}, transcript(t, e.history(t, c, 10)))
}

func finishFenced(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	for name, fence := range stale(run.Fence) {
		f := done(run, 1, push(name))
		f.Fence, f.Messages = fence, []store.Message{said(1, "user", name, 1)}
		require.Equal(t, store.FinishFenced, e.tryFinish(t, f).Outcome, name)
		f.State = store.RunCancelled
		require.Equal(t, store.FinishFenced, e.tryFinish(t, f).Outcome, name)
	}
	s := e.session(t, c)
	require.Equal(t, store.Running, s.State)
	require.Equal(t, []int64{1, 0, 0}, []int64{s.Gen, s.DoneSeq, s.OutSeq})
	require.Empty(t, e.history(t, c, 10))
	e.finish(t, done(run, 1))
}

func finishTakenOver(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	next := e.retake(t, c)
	require.Equal(t, store.FinishFenced, e.tryFinish(t, done(run, 1, push("late"))).Outcome)
	e.finish(t, done(next, 1, push("answer")))
	require.Equal(t, store.FinishFenced, e.tryFinish(t, done(run, 1, push("late"))).Outcome,
		"the run is done, but by another owner")
	require.Len(t, e.replies(t, run.RunID), 1)
}

func finishStopped(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.stop("m2"), c.user("m3"))
	f := done(run, 1, push("answer"))
	f.Messages = []store.Message{said(1, "user", "hello", 1)}
	require.Equal(t, store.FinishResult{Outcome: store.FinishStopped}, e.tryFinish(t, f))
	require.Equal(t, store.Running, e.session(t, c).State)
	require.Empty(t, e.history(t, c, 10))
	require.Empty(t, e.replies(t, run.RunID))

	got := e.finish(t, cancelled(run, 2, push("stopped"), push("1 message waits")))
	require.Equal(t, int64(1), got.FirstOut)
	require.NotEqual(t, uuid.Nil, got.RunID, "messages that wait stay")
	require.Equal(t, store.RunCancelled, e.run(t, run.RunID).State)
	require.Equal(t, uuid.Nil, e.session(t, c).StopRun)
	require.Equal(t, int64(2), e.session(t, c).OutSeq)
}

func finishClosesCalls(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, ToolCalls: []store.ToolCall{
		call("c1", "unsafe", store.ToolIntent, ""), call("c2", "read", store.ToolIntent, ""),
		call("c3", "idempotent", store.ToolIntent, ""), call("c4", "unsafe", store.ToolDone, "42"),
	}})
	e.finish(t, cancelled(run, 1))
	requireCalls(t, []store.ToolCall{
		call("c1", "unsafe", store.ToolUnknown, ""), call("c2", "read", store.ToolFailed, ""),
		call("c3", "idempotent", store.ToolFailed, ""), call("c4", "unsafe", store.ToolDone, "42"),
	}, e.toolCalls(t, run.RunID))
}

func finishCancelledUnasked(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.finish(t, cancelled(run, 1))
	require.Equal(t, store.RunCancelled, e.run(t, run.RunID).State)
	require.Equal(t, store.Idle, e.session(t, c).State)
}

func finishStopOfAnother(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.stop("m2"), c.user("m3"))
	e.finish(t, cancelled(run, 2))
	next := e.claim(t, c, worker)
	e.finish(t, done(next, 3))
	require.Equal(t, store.RunDone, e.run(t, next.RunID).State)
}

func finishRepeated(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	f := done(run, 1, push("answer"))
	e.finish(t, f)
	before := e.session(t, c)
	require.Equal(t, store.FinishResult{Outcome: store.Finished}, e.tryFinish(t, f))
	require.Equal(t, before, e.session(t, c))
	require.Len(t, e.replies(t, run.RunID), 1)

	other := f
	other.State = store.RunCancelled
	require.Equal(t, store.FinishFenced, e.tryFinish(t, other).Outcome, "that is not what had committed")
}

func finishRepeatedLater(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.user("m2"))
	f := done(run, 1, push("answer"))
	e.finish(t, f)
	next := e.claim(t, c, worker)
	require.Equal(t, store.FinishResult{Outcome: store.Finished}, e.tryFinish(t, f))
	e.finish(t, done(next, 2))
}

func finishReplies(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1", push("one"))
	run := e.start(t, c, "m2")
	named := push("three")
	named.DKey = run.RunID.String() + ":question"
	got := e.finish(t, done(run, 2, push("two"), named, push("four")))
	require.Equal(t, int64(2), got.FirstOut)
	require.False(t, got.Settled)

	replies := e.replies(t, run.RunID)
	require.Len(t, replies, 3)
	for i, want := range []struct{ dkey, text string }{
		{run.RunID.String() + ":1", "two"}, {named.DKey, "three"}, {run.RunID.String() + ":3", "four"},
	} {
		require.Equal(t, int64(i+2), replies[i].OutSeq)
		require.Equal(t, want.dkey, replies[i].DKey)
		require.Equal(t, want.text, textOf(t, replies[i].Parts))
		require.Equal(t, "telegram", replies[i].Platform)
		require.Equal(t, store.OutPending, replies[i].State)
	}
}

func finishNoReplies(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	got := e.finish(t, done(run, 1))
	require.Zero(t, got.FirstOut)
	require.Zero(t, e.session(t, c).OutSeq)
	require.Empty(t, e.replies(t, run.RunID))
}

func finishRead(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	got := e.finish(t, done(run, 1, readable("one"), readable("two")))
	require.True(t, got.Settled)
	require.Equal(t, int64(1), got.FirstOut)
	s := e.session(t, c)
	require.Equal(t, []int64{2, 2}, []int64{s.OutSeq, s.OutSent})
	for _, r := range e.replies(t, run.RunID) {
		require.Equal(t, store.OutSent, r.State)
	}
	e.answer(t, c, "m2", push("three"))
	_, ok := e.deliver(t, sender, store.DeliveryClaim{SKey: c.skey, OutSeq: 3})
	require.True(t, ok, "the row behind them is the next one")
}

func finishReadBehind(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1", push("one"))
	run := e.start(t, c, "m2")
	got := e.finish(t, done(run, 2, readable("two")))
	require.False(t, got.Settled)
	require.Zero(t, e.session(t, c).OutSent)
	require.Equal(t, store.OutSent, e.replies(t, run.RunID)[0].State)
}

func finishMixed(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	got := e.finish(t, done(run, 1, readable("one"), push("two")))
	require.False(t, got.Settled)
	require.Zero(t, e.session(t, c).OutSent)
	replies := e.replies(t, run.RunID)
	require.Equal(t, []store.OutState{store.OutSent, store.OutPending}, []store.OutState{replies[0].State, replies[1].State})
}

func finishMany(t *testing.T, e *env) {
	const n = 100
	var fins []store.Finish
	var chats []chat
	for i, name := range uids("chat", n) {
		c := newChat(name)
		run := e.start(t, c, "m1")
		if i%2 == 1 {
			e.admitOne(t, c.user("m2"))
		}
		f := done(run, 1, push(name))
		f.Messages = []store.Message{said(1, "assistant", name, 0)}
		chats, fins = append(chats, c), append(fins, f)
	}
	got, err := e.Store.Finish(t.Context(), fins)
	require.NoError(t, err)
	require.Len(t, got, n)
	for i, c := range chats {
		want := store.FinishResult{Outcome: store.Finished, Known: true, Gen: 2, FirstOut: 1}
		if i%2 == 1 {
			want.RunID = fins[i].NextRunID
		}
		require.Equal(t, want, got[i])
		require.Equal(t, []string{"assistant: " + uids("chat", n)[i]}, transcript(t, e.history(t, c, 10)))
		require.Equal(t, uids("chat", n)[i], textOf(t, e.replies(t, fins[i].RunID)[0].Parts))
	}
}

func finishOutcomes(t *testing.T, e *env) {
	fins := make([]store.Finish, 4)
	for i, name := range uids("chat", len(fins)) {
		c := newChat(name)
		run := e.start(t, c, "m1")
		fins[i] = done(run, 1)
		switch i {
		case 1:
			e.admitOne(t, c.stop("m2"))
		case 2:
			fins[i].Owner = "somebody else"
		case 3:
			e.admitOne(t, c.stop("m2"))
			fins[i] = cancelled(run, 2)
		}
	}
	got, err := e.Store.Finish(t.Context(), fins)
	require.NoError(t, err)
	outcomes := make([]store.FinishOutcome, len(got))
	for i, r := range got {
		outcomes[i] = r.Outcome
	}
	require.Equal(t, []store.FinishOutcome{store.Finished, store.FinishStopped, store.FinishFenced, store.Finished}, outcomes)
}

func finishTwiceInOneCall(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	mine, foreign := done(run, 1, push("answer")), done(run, 1, push("foreign"))
	foreign.Owner = "somebody else"
	got, err := e.Store.Finish(t.Context(), []store.Finish{mine, foreign, mine})
	require.NoError(t, err)
	require.Equal(t, []store.FinishOutcome{store.Finished, store.FinishFenced, store.Finished},
		[]store.FinishOutcome{got[0].Outcome, got[1].Outcome, got[2].Outcome})
	require.NotEqual(t, got[0].Known, got[2].Known, "one of the two was written")
	require.Equal(t, int64(2), e.session(t, c).Gen)
	require.Equal(t, "answer", textOf(t, e.replies(t, run.RunID)[0].Parts))
}

func finishPoison(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	bad := json.RawMessage(`{"text":"\u0000"}`)
	for name, change := range map[string]func(*store.Finish){
		"message": func(f *store.Finish) { f.Messages = []store.Message{{N: 1, Role: "assistant", Content: bad}} },
		"parts":   func(f *store.Finish) { f.Replies[0].Parts = bad },
		"target":  func(f *store.Finish) { f.Replies[0].Target = bad },
		"usage":   func(f *store.Finish) { f.Usage = bad },
		"error":   func(f *store.Finish) { f.Error = "a\x00b" },
	} {
		f := done(run, 1, push("answer"))
		change(&f)
		_, err := e.Store.Finish(t.Context(), []store.Finish{f})
		require.ErrorIs(t, err, store.ErrRejected, name)
		require.Equal(t, store.Running, e.session(t, c).State, name)
	}
	e.finish(t, done(run, 1, push("answer")))
}

func finishSameDKey(t *testing.T, e *env) {
	c := newChat("a")
	named := push("one")
	named.DKey = "own-key"
	e.answer(t, c, "m1", named)
	run := e.start(t, c, "m2")
	_, err := e.Store.Finish(t.Context(), []store.Finish{done(run, 2, named)})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Equal(t, store.Running, e.session(t, c).State)
}
