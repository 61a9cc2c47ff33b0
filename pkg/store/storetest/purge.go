package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func purgeCases() []testCase {
	return []testCase{
		{"what nobody needs any more is removed", purgeOld},
		{"what is young is kept", purgeYoung},
		{"what waits or works is kept", purgeActive},
		{"what an open dead letter tells of is kept", purgeLetters},
		{"purge keeps to the limit", purgeLimit},
		{"history stays, and can be forked", purgeHistory},
	}
}

// retention is longer than anything else that takes time.
const retention = 30 * 24 * time.Hour

// purge removes all that is older than retention.
func (e *env) purge(t tb) (removed int) {
	t.Helper()
	for {
		n, err := e.Store.Purge(t.Context(), retention, 1000)
		require.NoError(t, err)
		if n == 0 {
			return removed
		}
		removed += n
	}
}

func (e *env) inbox(t tb, c chat) []store.InboxRow {
	t.Helper()
	got, err := e.Store.InboxAfter(t.Context(), c.skey, 0)
	require.NoError(t, err)
	return got
}

func purgeOld(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{
		Fence: run.Fence, RunGen: 1, ToolCalls: []store.ToolCall{call("c1", "read", store.ToolDone, "found")},
	})
	e.finish(t, done(run, 1, push("answer")))
	e.mark(t, sent(c, 1))
	letter := e.bury(t, 1, store.DeadKindIngress)[0]
	_, err := e.Store.CountReplay(t.Context(), letter)
	require.NoError(t, err)
	before := e.session(t, c)
	require.Zero(t, e.purge(t))
	e.Advance(t, retention+time.Hour)
	require.GreaterOrEqual(t, e.purge(t), 4, "a message, a reply, a run and a letter")

	require.Empty(t, e.inbox(t, c))
	_, err = e.Store.Run(t.Context(), run.RunID)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Empty(t, e.toolCalls(t, run.RunID))
	require.Empty(t, e.replies(t, run.RunID))
	require.Empty(t, e.letters(t))
	after := e.session(t, c)
	require.Equal(t, []int64{before.LastSeq, before.DoneSeq, before.OutSeq, before.OutSent, before.Gen},
		[]int64{after.LastSeq, after.DoneSeq, after.OutSeq, after.OutSent, after.Gen})

	next := e.start(t, c, "m2")
	require.Equal(t, []any{int64(1), 1, int64(2)}, []any{next.DoneSeq, len(next.Inbox), next.Inbox[0].Seq})
	require.Equal(t, int64(2), e.finish(t, done(next, 2, push("answer"))).FirstOut)
	e.requireDeliverable(t, sender, c.out(2), true, "the next reply is next")
}

func purgeYoung(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1", push("answer"))
	e.mark(t, sent(c, 1))
	e.Advance(t, retention+time.Hour)
	runID := e.answer(t, c, "m2", push("answer"))
	e.mark(t, sent(c, 2))
	e.purge(t)
	rows := e.inbox(t, c)
	require.Len(t, rows, 1)
	require.Equal(t, "m2", rows[0].UID)
	require.Len(t, e.replies(t, runID), 1)
	require.Equal(t, runID, e.submission(t, c, "m2").Run.ID)
	require.True(t, e.admitOne(t, c.user("m2")).Duplicate)
}

func purgeActive(t *testing.T, e *env) {
	queued, running, waiting, owing := newChat("queued"), newChat("running"), newChat("waiting"), newChat("owing")
	a := e.admitOne(t, queued.user("m1"))
	run := e.start(t, running, "m1")
	e.checkpoint(t, store.Checkpoint{
		Fence: run.Fence, RunGen: 1, ToolCalls: []store.ToolCall{call("c1", "read", store.ToolIntent, "")},
	})
	asking := e.start(t, waiting, "m1")
	e.suspend(t, asking)
	owed := e.answer(t, owing, "m1", push("1"), push("2"))
	e.mark(t, sent(owing, 1))
	e.Advance(t, retention+time.Hour)
	e.purge(t)

	for _, c := range []chat{queued, running, waiting} {
		require.Len(t, e.inbox(t, c), 1)
	}
	require.Equal(t, store.RunQueued, e.run(t, a.RunID).State)
	require.Equal(t, store.RunWaiting, e.run(t, asking.RunID).State)
	require.Len(t, e.toolCalls(t, run.RunID), 1)
	e.finish(t, done(run, 1))
	require.Equal(t, store.RunDone, e.run(t, owed).State, "its reply is on its way")
	e.requireDeliverable(t, sender, owing.out(2), true, "it is delivered however late")
}

func purgeLetters(t *testing.T, e *env) {
	c := newChat("a")
	e.start(t, c, "m1")
	g := e.givingUp(t, c, 1, push("sorry"))
	e.giveUp(t, g)
	e.mark(t, sent(c, 1))
	open := e.bury(t, 1, store.DeadKindIngress)[0]
	e.Advance(t, retention+time.Hour)
	e.purge(t)
	require.Equal(t, store.RunDead, e.run(t, g.RunID).State)
	require.Len(t, e.inbox(t, c), 1, "it may be replayed")
	require.Len(t, e.letters(t), 2)

	for _, id := range []store.DeadLetter{g.Letter, {ID: open}} {
		_, err := e.Store.CountReplay(t.Context(), id.ID)
		require.NoError(t, err)
	}
	e.purge(t)
	require.Len(t, e.letters(t), 2, "replayed just now")
	e.Advance(t, retention+time.Hour)
	e.purge(t)
	require.Empty(t, e.letters(t))
	require.Empty(t, e.inbox(t, c))
	_, err := e.Store.Run(t.Context(), g.RunID)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func purgeLimit(t *testing.T, e *env) {
	var chats []chat
	for _, name := range uids("chat", 6) {
		chats = append(chats, newChat(name))
		e.answer(t, chats[len(chats)-1], "m1")
	}
	e.Advance(t, retention+time.Hour)
	left := func() (n int) {
		for _, c := range chats {
			n += len(e.inbox(t, c))
		}
		return n
	}
	for _, want := range []int{4, 2, 0} {
		n, err := e.Store.Purge(t.Context(), retention, 2)
		require.NoError(t, err)
		require.Positive(t, n)
		require.Equal(t, want, left())
	}
}

func purgeHistory(t *testing.T, e *env) {
	c, forked := newChat("a"), newChat("b")
	e.turn(t, c, "1")
	e.turn(t, c, "2")
	id := e.session(t, c).SessionID
	before := transcript(t, e.history(t, c, 100))
	e.Advance(t, retention+time.Hour)
	require.Positive(t, e.purge(t))
	require.Equal(t, before, transcript(t, e.history(t, c, 100)))
	require.Equal(t, int64(3), e.conversation(t, id).LastRunGen)
	e.admitOne(t, forked.fork("fork", e.conversation(t, id)))
	require.Equal(t, before, transcript(t, e.history(t, forked, 100)))
}
