package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func resumeCases() []testCase {
	return []testCase{
		{"conversations are known from the first message on", conversationsFirst},
		{"conversations come newest first and keep to the limit", conversationsLimit},
		{"resumed conversation goes on, and the one before ends", resumeOlder},
		{"resuming fences the current run off", resumeFences},
		{"resuming the current conversation is a fence", resumeCurrent},
		{"conversation of another session is not resumed", resumeForeign},
		{"fork begins with what it was forked from", forkHistory},
		{"fork of a fork begins with both", forkTwice},
		{"fork can open a session", forkOpens},
		{"fork without a fresh id is rejected", forkIDs},
		{"reader that knows a run is told what came after it", historyAfter},
		{"reader that knows a run of a fork is told what came after it", historyAfterFork},
	}
}

// resume takes up an older conversation, fork one of another session.
func (c chat) resume(uid string, id uuid.UUID) store.AdmitMessage {
	m := c.reset(uid)
	m.SessionID, m.Resume = id, &store.Resumption{}
	return m
}

func (c chat) fork(uid string, parent store.Conversation) store.AdmitMessage {
	m := c.reset(uid)
	m.Resume = &store.Resumption{Parent: parent.ID, ParentUpto: parent.LastRunGen}
	return m
}

func (e *env) conversation(t tb, id uuid.UUID) store.Conversation {
	t.Helper()
	got, err := e.Store.Conversation(t.Context(), id)
	require.NoError(t, err)
	return got
}

// turn is one turn of two messages, "q<uid>" and "a<uid>".
func (e *env) turn(t tb, c chat, uid string) {
	t.Helper()
	run := e.start(t, c, uid)
	f := done(run, run.LastSeq)
	f.Messages = []store.Message{said(1, "user", "q"+uid, run.LastSeq), said(2, "assistant", "a"+uid, 0)}
	e.finish(t, f)
}

func (e *env) historyOf(t tb, c chat, id uuid.UUID, limit int) []string {
	t.Helper()
	got, err := e.Store.History(t.Context(), c.skey, id, limit)
	require.NoError(t, err)
	return transcript(t, got)
}

func conversationsFirst(t *testing.T, e *env) {
	c := newChat("a")
	got, err := e.Store.Conversations(t.Context(), c.skey, 10)
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = e.Store.Conversation(t.Context(), newID())
	require.ErrorIs(t, err, store.ErrNotFound)

	m := c.user("m1")
	e.admitOne(t, m)
	run := e.claim(t, c, worker)
	first := e.conversation(t, m.SessionID)
	require.False(t, first.StartedAt.IsZero())
	want := store.Conversation{ID: m.SessionID, SKey: c.skey, Tenant: tenant, StartedAt: first.StartedAt}
	require.Equal(t, want, first, "a run that goes on does not count")
	require.Equal(t, []store.Conversation{want}, e.conversations(t, c))

	e.finish(t, done(run, 1))
	e.turn(t, c, "m2")
	want.Runs, want.LastRunGen = 2, 3
	require.Equal(t, want, e.conversation(t, m.SessionID))
	require.Equal(t, []store.Conversation{want}, e.conversations(t, c))
}

func conversationsLimit(t *testing.T, e *env) {
	c := newChat("a")
	e.turn(t, c, "m0")
	ids := []uuid.UUID{e.session(t, c).SessionID}
	for _, uid := range uids("n", 3) {
		m := c.reset(uid)
		e.admitOne(t, m)
		ids = append([]uuid.UUID{m.SessionID}, ids...)
	}
	requireConversations(t, e.conversations(t, c), ids...)
	got, err := e.Store.Conversations(t.Context(), c.skey, 2)
	require.NoError(t, err)
	requireConversations(t, got, ids[:2]...)
	old := e.conversation(t, ids[3])
	require.Equal(t, []any{1, int64(1), false}, []any{old.Runs, old.LastRunGen, old.EndedAt.IsZero()})
	require.False(t, old.EndedAt.Before(old.StartedAt))
}

func resumeOlder(t *testing.T, e *env) {
	c := newChat("a")
	e.turn(t, c, "1")
	first := e.session(t, c).SessionID
	second := c.reset("new")
	e.admitOne(t, second)
	e.turn(t, c, "2")
	got := e.admitOne(t, c.resume("resume", first))
	require.Equal(t, []any{int64(4), store.Idle, int64(2)}, []any{got.Seq, got.State, got.OutSeq})
	require.Equal(t, first, e.session(t, c).SessionID)
	require.True(t, e.conversation(t, first).EndedAt.IsZero(), "it is the current one again")
	require.False(t, e.conversation(t, second.SessionID).EndedAt.IsZero())
	require.Len(t, e.conversations(t, c), 2)

	e.turn(t, c, "3")
	require.Equal(t, []string{"user: q1", "assistant: a1", "user: q3", "assistant: a3"}, transcript(t, e.history(t, c, 10)))
	require.Equal(t, []string{"user: q2", "assistant: a2"}, e.historyOf(t, c, second.SessionID, 10))
	require.Equal(t, 2, e.conversation(t, first).Runs)

	e.admitOne(t, c.resume("back", second.SessionID))
	require.Equal(t, second.SessionID, e.session(t, c).SessionID)
	require.False(t, e.conversation(t, first).EndedAt.IsZero())
}

func resumeFences(t *testing.T, e *env) {
	c := newChat("a")
	e.turn(t, c, "1")
	first := e.session(t, c).SessionID
	e.admitOne(t, c.reset("new"))
	run := e.start(t, c, "2")
	e.admitOne(t, c.user("3"))
	got := e.admitOne(t, c.resume("resume", first))
	require.Equal(t, []any{run.RunID, store.Idle}, []any{got.Fenced, got.State})
	e.requireOff(t, run)
	s := e.session(t, c)
	require.Equal(t, []int64{5, 5}, []int64{s.LastSeq, s.DoneSeq})
}

func resumeCurrent(t *testing.T, e *env) {
	c := newChat("a")
	e.turn(t, c, "1")
	run := e.start(t, c, "2")
	got := e.admitOne(t, c.resume("resume", run.SessionID))
	require.Equal(t, run.RunID, got.Fenced)
	e.requireOff(t, run)
	require.Equal(t, run.SessionID, e.session(t, c).SessionID)
	requireConversations(t, e.conversations(t, c), run.SessionID)
	require.Equal(t, []string{"user: q1", "assistant: a1"}, transcript(t, e.history(t, c, 10)))
}

func resumeForeign(t *testing.T, e *env) {
	c, other := newChat("a"), newChat("b")
	e.turn(t, c, "1")
	e.turn(t, other, "1")
	before := e.session(t, c)
	for _, m := range []store.AdmitMessage{
		c.resume("m2", newID()),
		c.resume("m2", e.session(t, other).SessionID),
		newChat("new").resume("m1", e.session(t, other).SessionID),
	} {
		_, err := e.Store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
		require.ErrorIs(t, err, store.ErrRejected)
	}
	require.Equal(t, before, e.session(t, c))
	e.noSession(t, newChat("new"))
	require.Len(t, e.conversations(t, other), 1)
}

func forkHistory(t *testing.T, e *env) {
	parent, c := newChat("parent"), newChat("a")
	e.turn(t, parent, "1")
	e.turn(t, parent, "2")
	from := e.conversation(t, e.session(t, parent).SessionID)
	e.turn(t, c, "0")
	m := c.fork("fork", from)
	e.admitOne(t, m)
	e.turn(t, parent, "3")
	got := e.conversation(t, m.SessionID)
	require.Equal(t, []any{c.skey, from.ID, from.LastRunGen, 0}, []any{got.SKey, got.Parent, got.ParentUpto, got.Runs})
	e.turn(t, c, "4")

	own := []string{"user: q4", "assistant: a4"}
	whole := append([]string{"user: q1", "assistant: a1", "user: q2", "assistant: a2"}, own...)
	for limit, want := range map[int][]string{100: whole, 6: whole, 5: whole[1:], 3: whole[3:], 2: own, 1: own[1:]} {
		require.Equal(t, want, e.historyOf(t, c, m.SessionID, limit), limit)
	}
	require.Len(t, e.historyOf(t, parent, from.ID, 100), 6, "the parent goes on by itself")

	early := c.fork("early", from)
	early.Resume.ParentUpto = 1
	e.admitOne(t, early)
	require.Equal(t, whole[:2], e.historyOf(t, c, early.SessionID, 100), "cut at a run")
}

func forkTwice(t *testing.T, e *env) {
	a, b, c := newChat("a"), newChat("b"), newChat("c")
	e.turn(t, a, "1")
	e.admitOne(t, b.fork("fork", e.conversation(t, e.session(t, a).SessionID)))
	e.turn(t, b, "2")
	e.admitOne(t, c.fork("fork", e.conversation(t, e.session(t, b).SessionID)))
	e.turn(t, c, "3")
	whole := []string{"user: q1", "assistant: a1", "user: q2", "assistant: a2", "user: q3", "assistant: a3"}
	require.Equal(t, whole, transcript(t, e.history(t, c, 100)))
	require.Equal(t, whole[1:], transcript(t, e.history(t, c, 5)))
	require.Equal(t, whole[3:], transcript(t, e.history(t, c, 3)))
}

func forkOpens(t *testing.T, e *env) {
	parent, c := newChat("parent"), newChat("a")
	e.turn(t, parent, "1")
	m := c.fork("fork", e.conversation(t, e.session(t, parent).SessionID))
	require.Equal(t, store.Admitted{Seq: 1, Gen: 1, State: store.Idle, OutSeq: 1}, e.admitOne(t, m))
	requireConversations(t, e.conversations(t, c), m.SessionID)
	require.Equal(t, []string{"user: q1", "assistant: a1"}, transcript(t, e.history(t, c, 10)))
}

func forkIDs(t *testing.T, e *env) {
	parent, c := newChat("parent"), newChat("a")
	e.turn(t, parent, "1")
	e.turn(t, c, "1")
	from := e.conversation(t, e.session(t, parent).SessionID)
	for _, id := range []uuid.UUID{uuid.Nil, e.session(t, c).SessionID} {
		m := c.fork("fork", from)
		m.SessionID = id
		_, err := e.Store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
		require.ErrorIs(t, err, store.ErrRejected)
	}
	require.Len(t, e.conversations(t, c), 1)
}

func (e *env) after(t tb, c chat, runGen int64, limit int) []string {
	t.Helper()
	got, err := e.Store.HistoryAfter(t.Context(), c.skey, e.session(t, c).SessionID, runGen, limit)
	require.NoError(t, err)
	return transcript(t, got)
}

func historyAfter(t *testing.T, e *env) {
	c := newChat("a")
	for _, uid := range []string{"1", "2", "3"} {
		e.turn(t, c, uid)
	}
	all := transcript(t, e.history(t, c, 100))
	require.Equal(t, all, e.after(t, c, 0, 100))
	require.Equal(t, all[2:], e.after(t, c, 1, 100))
	require.Equal(t, all[2:], e.after(t, c, 2, 100), "between two runs")
	require.Equal(t, all[5:], e.after(t, c, 1, 1), "the newest")
	require.Empty(t, e.after(t, c, 5, 100))
	require.Empty(t, e.after(t, newChat("a"), 9, 100))
	require.Empty(t, e.after(t, c, 0, 0))
}

func historyAfterFork(t *testing.T, e *env) {
	parent, c := newChat("parent"), newChat("a")
	for _, uid := range []string{"1", "2", "3"} {
		e.turn(t, parent, uid)
	}
	e.admitOne(t, c.fork("fork", e.conversation(t, e.session(t, parent).SessionID)))
	e.turn(t, c, "4")
	known := e.conversation(t, e.session(t, c).SessionID).LastRunGen
	e.turn(t, c, "5")
	require.Equal(t, []string{"user: q5", "assistant: a5"}, e.after(t, c, known, 100), "what it was forked from is known")
	require.Equal(t, transcript(t, e.history(t, c, 100)), e.after(t, c, 0, 100))
	require.Len(t, e.after(t, c, 0, 100), 10)
	require.Len(t, e.after(t, c, 0, 7), 7)
	e.Advance(t, time.Hour)
	require.Empty(t, e.after(t, c, e.session(t, c).Gen, 100))
}
