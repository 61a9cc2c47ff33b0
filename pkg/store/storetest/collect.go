package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func collectCases() []testCase {
	return []testCase{
		{"idle session waits for more messages, without a run", collectOpens},
		{"quiet window ends after the last message", collectExtends},
		{"quiet window has a maximum", collectMax},
		{"messages that do not collect leave the window alone", collectPlain},
		{"row that ends the window makes the run", collectEnds},
		{"busy session notes that a run is wanted", collectBusy},
		{"stop of a collecting session starts what was collected", collectStop},
		{"reset covers what was collected", collectReset},
		{"paused while it collects: a run begins when it goes on", collectPaused},
		{"due windows keep to the partitions and to the ids at hand", collectDue},
	}
}

// The quiet window of the suite.
const (
	quiet      = 10 * time.Minute
	quietLimit = 25 * time.Minute
)

func (c chat) collected(uid string) store.AdmitMessage {
	m := c.user(uid)
	m.Collect = &store.Collect{Quiet: quiet, Max: quietLimit}
	return m
}

// wake wakes what is due and returns it without its age.
func (e *env) wake(t tb, fresh ...uuid.UUID) []store.QueuedRun {
	t.Helper()
	got, err := e.Store.WakeDue(t.Context(), allPartitions(), fresh)
	require.NoError(t, err)
	for i := range got {
		require.Less(t, got[i].Age, time.Hour)
		got[i].Age = 0
	}
	return got
}

func collectOpens(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	require.Equal(t, store.Admitted{Seq: 2, Gen: 2, State: store.Waiting}, e.admitOne(t, c.collected("m2")))
	s := e.session(t, c)
	require.Equal(t, []int64{2, 1, 2}, []int64{s.LastSeq, s.DoneSeq, s.WantSeq})
	require.Equal(t, store.WaitCollect, s.WaitKind)
	require.Equal(t, quiet, s.WakeAt.Sub(s.QueuedAt))
	require.Empty(t, e.queued(t, allPartitions(), 0))
	require.Empty(t, e.wake(t, newID()))

	opened := newChat("b")
	got := e.admitOne(t, opened.collected("m1"))
	require.Equal(t, []any{store.Waiting, uuid.Nil, false}, []any{got.State, got.RunID, got.Created}, "a new session as well")
	require.Equal(t, store.WaitCollect, e.session(t, opened).WaitKind)
}

func collectExtends(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.collected("m1"))
	gen := e.session(t, c).Gen
	e.Advance(t, 6*time.Minute)
	require.Equal(t, store.Waiting, e.admitOne(t, c.collected("m2")).State)
	e.Advance(t, 6*time.Minute)
	require.Empty(t, e.wake(t, newID()), "the second message has moved the end on")
	e.Advance(t, 5*time.Minute)

	fresh := newID()
	require.Equal(t,
		[]store.QueuedRun{{SKey: c.skey, Tenant: tenant, Gen: gen + 1, RunID: fresh, RunClass: runClass}}, e.wake(t, fresh))
	require.Empty(t, e.wake(t, newID()))
	run := e.claim(t, c, worker)
	require.Equal(t, []any{fresh, gen + 1, gen + 1, 1}, []any{run.RunID, run.Gen, run.FirstGen, run.Attempts})
	require.Len(t, run.Inbox, 2)
	e.finish(t, done(run, 2))
	e.requireTiles(t, c, fresh)
}

func collectMax(t *testing.T, e *env) {
	c := newChat("a")
	for _, uid := range uids("m", 3) {
		e.admitOne(t, c.collected(uid))
		e.Advance(t, 8*time.Minute)
	}
	require.Empty(t, e.wake(t, newID()), "24 minutes")
	s := e.session(t, c)
	require.Equal(t, quietLimit, s.WakeAt.Sub(s.QueuedAt))
	e.Advance(t, 2*time.Minute)
	require.Len(t, e.wake(t, newID()), 1)
}

func collectPlain(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.collected("m1"))
	before := e.session(t, c)
	for _, m := range []store.AdmitMessage{c.user("m2"), c.command("m3"), c.row("m4", store.KindSystem)} {
		got := e.admitOne(t, m)
		require.Equal(t, []any{store.Waiting, uuid.Nil, before.Gen}, []any{got.State, got.RunID, got.Gen})
	}
	after := e.session(t, c)
	require.Equal(t, []time.Time{before.WakeAt, before.QueuedAt}, []time.Time{after.WakeAt, after.QueuedAt})
	require.Equal(t, int64(2), after.WantSeq)
	e.Advance(t, quiet+time.Minute)
	require.Len(t, e.wake(t, newID()), 1)
	require.Len(t, e.claim(t, c, worker).Inbox, 4)
}

func collectEnds(t *testing.T, e *env) {
	user, command := newChat("user").user("m2"), newChat("command").command("m2")
	user.EndsCollect, command.EndsCollect = true, true
	interrupt := newChat("interrupt").interrupting("m2")
	interrupt.EndsCollect = true
	for _, m := range []store.AdmitMessage{user, command, interrupt, newChat("approval").approval("m2")} {
		c := chat{key: m.SessionKey, skey: m.SKey}
		gen := e.admitOne(t, c.collected("m1")).Gen
		got := e.admitOne(t, m)
		require.Equal(t, []any{store.Queued, m.RunID, true, gen + 1}, []any{got.State, got.RunID, got.Created, got.Gen}, m.SessionKey)
		require.Equal(t, uuid.Nil, got.StopRun, "nothing was running")
		run := e.claim(t, c, worker)
		require.Len(t, run.Inbox, 2)
		e.finish(t, done(run, 2))
	}
	e.Advance(t, time.Hour)
	require.Empty(t, e.wake(t, newID()))

	idle := newChat("idle").user("m1")
	idle.EndsCollect = true
	require.True(t, e.admitOne(t, idle).Created, "without a window it is a plain message")
}

func collectBusy(t *testing.T, e *env) {
	for name, c := range e.busy(t) {
		if name == "collecting" {
			continue
		}
		before := e.session(t, c)
		got := e.admitOne(t, c.collected("m2"))
		require.Equal(t, []any{before.State, before.RunID, before.Gen}, []any{got.State, got.RunID, got.Gen}, name)
		after := e.session(t, c)
		require.Equal(t, int64(2), after.WantSeq, name)
		require.Equal(t, before.WakeAt, after.WakeAt, name)
	}
	next := e.finish(t, done(e.claim(t, newChat("queued"), worker), 1))
	require.NotEqual(t, uuid.Nil, next.RunID)
}

func collectStop(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.collected("m1"))
	m := c.politeStop("m2")
	got := e.admitOne(t, m)
	require.Equal(t, []any{store.Queued, m.RunID, true, uuid.Nil, int64(1)},
		[]any{got.State, got.RunID, got.Created, got.StopRun, got.OutSeq}, "nothing was running")
	run := e.claim(t, c, worker)
	require.Equal(t, uuid.Nil, run.StopRun)
	require.Len(t, run.Inbox, 2)
}

func collectReset(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.collected("m1"), c.collected("m2"))
	m := c.reset("m3")
	got := e.admitOne(t, m)
	require.Equal(t, []any{store.Idle, uuid.Nil, uuid.Nil}, []any{got.State, got.RunID, got.Fenced})
	e.requireTiles(t, c, m.RunID)
	require.Equal(t, int64(3), e.session(t, c).DoneSeq)
	e.Advance(t, time.Hour)
	require.Empty(t, e.wake(t, newID()))
}

func collectPaused(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.collected("m1"))
	require.Equal(t, uuid.Nil, e.pause(t, c).RunID)
	e.Advance(t, time.Hour)
	require.Empty(t, e.wake(t, newID()))
	next := newID()
	got, err := e.Store.Unpause(t.Context(), c.skey, next)
	require.NoError(t, err)
	require.Equal(t, []any{store.Queued, next}, []any{got.State, got.RunID})
	require.Len(t, e.claim(t, c, worker).Inbox, 1)
}

func collectDue(t *testing.T, e *env) {
	chats := []chat{newChat("a"), newChat("b"), newChat("c")}
	for _, c := range chats {
		e.admitOne(t, c.collected("m1"))
	}
	e.Advance(t, quiet+time.Minute)
	other := (session.Partition(chats[0].skey) + 1) % session.Partitions
	for _, c := range chats {
		for other == session.Partition(c.skey) {
			other = (other + 1) % session.Partitions
		}
	}
	got, err := e.Store.WakeDue(t.Context(), []int{other}, []uuid.UUID{newID()})
	require.NoError(t, err)
	require.Empty(t, got)
	require.Empty(t, e.wake(t))
	require.Len(t, e.wake(t, newID(), newID()), 2)
	require.Len(t, e.wake(t, newID(), newID()), 1)
	for _, c := range chats {
		require.Equal(t, store.Queued, e.session(t, c).State)
	}
}
