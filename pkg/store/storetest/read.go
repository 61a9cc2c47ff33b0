package storetest

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func readCases() []testCase {
	return []testCase{
		{"store is ready", ready},
		{"what does not exist is not found", notFound},
		{"history is in the order of runs and messages", historyOrder},
		{"history is cut to the newest messages", historyLimit},
		{"history stored out of order is read in order", historyOutOfOrder},
		{"history holds branch 0, a run all branches", historyBranches},
		{"history of another session or conversation is not mixed in", historySeparate},
		{"messages after a takeover go on under the run's first generation", historyTakeover},
		{"run messages and replies are those of the run", runOwnRows},
		{"submission waits, is taken, is answered", submissionPhases},
		{"waiting submission never shows another's run", submissionWaits},
		{"submission of a merged turn shows the run that covers it", submissionMerged},
		{"submission shows the notice", submissionNotice},
		{"submission of a refused row shows the run that covers it", submissionRefused},
	}
}

func ready(t *testing.T, e *env) {
	require.NoError(t, e.Store.Ready(t.Context()))
}

func notFound(t *testing.T, e *env) {
	c := newChat("a")
	e.noSession(t, c)
	_, err := e.Store.Run(t.Context(), newID())
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = e.Store.Submission(t.Context(), c.skey, "m1")
	require.ErrorIs(t, err, store.ErrNotFound, "no session")
	e.admitOne(t, c.user("m1"))
	_, err = e.Store.Submission(t.Context(), c.skey, "m2")
	require.ErrorIs(t, err, store.ErrNotFound, "no message")
	_, err = e.Store.Submission(t.Context(), newChat("b").skey, "m1")
	require.ErrorIs(t, err, store.ErrNotFound, "another session")

	msgs, err := e.Store.RunMessages(t.Context(), newID())
	require.NoError(t, err)
	require.Empty(t, msgs, "lists are empty")
	require.Empty(t, e.replies(t, newID()))
	history, err := e.Store.History(t.Context(), newChat("b").skey, newID(), 10)
	require.NoError(t, err)
	require.Empty(t, history)
}

// converse runs n turns of two messages each: "q<i>" and "a<i>".
func (e *env) converse(t tb, c chat, n int) {
	t.Helper()
	for i := range n {
		run := e.start(t, c, fmt.Sprint("m", i))
		f := done(run, run.LastSeq)
		f.Messages = []store.Message{
			said(1, "user", fmt.Sprint("q", i), run.LastSeq), said(2, "assistant", fmt.Sprint("a", i), 0),
		}
		e.finish(t, f)
	}
}

func historyOrder(t *testing.T, e *env) {
	c := newChat("a")
	e.converse(t, c, 2)
	run := e.start(t, c, "m9")
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "q9", 3)}})
	got := e.history(t, c, 100)
	require.Equal(t, []string{"user: q0", "assistant: a0", "user: q1", "assistant: a1", "user: q9"}, transcript(t, got))
	require.Equal(t, []int64{1, 0, 2, 0, 3}, []int64{got[0].InboxSeq, got[1].InboxSeq, got[2].InboxSeq, got[3].InboxSeq, got[4].InboxSeq})
	require.Equal(t, run.RunID, got[4].RunID)
	require.Equal(t, run.FirstGen, got[4].RunGen)
}

func historyLimit(t *testing.T, e *env) {
	c := newChat("a")
	e.converse(t, c, 4)
	require.Equal(t, []string{"assistant: a2", "user: q3", "assistant: a3"}, transcript(t, e.history(t, c, 3)))
	require.Len(t, e.history(t, c, 8), 8)
	require.Len(t, e.history(t, c, 9), 8)
	require.Empty(t, e.history(t, c, 0))
}

func historyOutOfOrder(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	for _, n := range []int{5, 2, 9, 1} {
		e.checkpoint(t, store.Checkpoint{
			Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(n, "tool", fmt.Sprint(n), 0)},
		})
	}
	require.Equal(t, []string{"tool: 1", "tool: 2", "tool: 5", "tool: 9"}, transcript(t, e.history(t, c, 10)))
}

func historyBranches(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	child := said(1, "assistant", "child", 0)
	child.Branch = 1
	e.checkpoint(t, store.Checkpoint{
		Fence: run.Fence, RunGen: run.FirstGen,
		Messages: []store.Message{child, said(1, "user", "parent", 1), said(2, "assistant", "answer", 0)},
	})
	require.Equal(t, []string{"user: parent", "assistant: answer"}, transcript(t, e.history(t, c, 10)))
	all, err := e.Store.RunMessages(t.Context(), run.RunID)
	require.NoError(t, err)
	require.Equal(t, []string{"user: parent", "assistant: answer", "assistant: child"}, transcript(t, all))
	require.Equal(t, 1, all[2].Branch)
}

func historySeparate(t *testing.T, e *env) {
	a, b := newChat("a"), newChat("b")
	e.converse(t, a, 2)
	e.converse(t, b, 1)
	require.Len(t, e.history(t, a, 10), 4)
	require.Len(t, e.history(t, b, 10), 2)

	other, err := e.Store.History(t.Context(), a.skey, newID(), 10)
	require.NoError(t, err)
	require.Empty(t, other)
	crossed, err := e.Store.History(t.Context(), a.skey, e.session(t, b).SessionID, 10)
	require.NoError(t, err)
	require.Empty(t, crossed)
}

func historyTakeover(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "q", 1)}})
	next := e.retake(t, c)
	f := done(next, 1)
	f.Messages = []store.Message{said(1, "user", "again", 1), said(2, "assistant", "a", 0)}
	e.finish(t, f)
	require.Equal(t, []string{"user: q", "assistant: a"}, transcript(t, e.history(t, c, 10)))
}

func runOwnRows(t *testing.T, e *env) {
	c := newChat("a")
	first := e.answer(t, c, "m1", push("one"), push("two"))
	e.admitOne(t, c.command("m2"))
	second := e.answer(t, c, "m3", push("three"))
	require.Len(t, e.replies(t, first), 2)
	got := e.replies(t, second)
	require.Len(t, got, 1, "a notice is no reply of a run")
	require.Equal(t, int64(4), got[0].OutSeq)

	d := newChat("b")
	e.converse(t, d, 2)
	last := e.history(t, d, 1)[0].RunID
	msgs, err := e.Store.RunMessages(t.Context(), last)
	require.NoError(t, err)
	require.Equal(t, []string{"user: q1", "assistant: a1"}, transcript(t, msgs))
}

func submissionPhases(t *testing.T, e *env) {
	c := newChat("a")
	m := c.user("m1")
	e.admitOne(t, m)
	got := e.submission(t, c, "m1")
	require.JSONEq(t, string(m.Body), string(got.Body))
	got.Body = nil
	require.Equal(t, store.Submission{Seq: 1, Kind: store.KindUser}, got, "queued")

	run := e.claim(t, c, worker)
	require.Equal(t, uuid.Nil, e.submission(t, c, "m1").Run.ID, "claimed, but nothing is stored")

	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "q", 1)}})
	got = e.submission(t, c, "m1")
	require.Equal(t, run.RunID, got.Run.ID)
	require.Equal(t, store.RunRunning, got.Run.State)

	e.finish(t, done(run, 1))
	got = e.submission(t, c, "m1")
	require.Equal(t, run.RunID, got.Run.ID)
	require.Equal(t, store.RunDone, got.Run.State)
	require.Equal(t, []int64{1, 1}, []int64{got.Run.FromSeq, got.Run.ToSeq})
}

func submissionWaits(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.users("m2", "m3")...)
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "q", 1)}})
	require.Equal(t, uuid.Nil, e.submission(t, c, "m2").Run.ID)
	e.finish(t, done(run, 1))
	require.Equal(t, uuid.Nil, e.submission(t, c, "m2").Run.ID)

	next := e.claim(t, c, worker)
	e.checkpoint(t, store.Checkpoint{Fence: next.Fence, RunGen: next.FirstGen, Messages: []store.Message{said(1, "user", "q", 2)}})
	require.Equal(t, next.RunID, e.submission(t, c, "m2").Run.ID)
	require.Equal(t, uuid.Nil, e.submission(t, c, "m3").Run.ID)
	require.Equal(t, run.RunID, e.submission(t, c, "m1").Run.ID)
}

func submissionMerged(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.users("m1", "m2", "m3")...)
	run := e.claim(t, c, worker)
	e.finish(t, done(run, 3))
	e.answer(t, c, "m4")
	for i, uid := range []string{"m1", "m2", "m3"} {
		got := e.submission(t, c, uid)
		require.Equal(t, int64(i+1), got.Seq)
		require.Equal(t, run.RunID, got.Run.ID)
	}
}

func submissionNotice(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.command("m1"), c.command("m2"), c.user("m3"))
	got := e.submission(t, c, "m2")
	require.Equal(t, store.KindCommand, got.Kind)
	require.Equal(t, "notice m2", textOf(t, got.Notice))
	require.Empty(t, e.submission(t, c, "m3").Notice)
}

func submissionRefused(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	refused := c.command("m2")
	refused.Kind = store.KindRefused
	e.admitOne(t, refused)
	got := e.submission(t, c, "m2")
	require.Equal(t, store.KindRefused, got.Kind)
	require.Equal(t, "notice m2", textOf(t, got.Notice))
	require.Equal(t, uuid.Nil, got.Run.ID)
	e.finish(t, done(run, 2))
	require.Equal(t, run.RunID, e.submission(t, c, "m2").Run.ID)
}
