package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func timerCases() []testCase {
	return []testCase{
		{"timers of a session are listed by their time", timerList},
		{"timer is replaced by its own session only", timerReplaced},
		{"timer is deleted by its own session only", timerDeleted},
		{"timers are due when their time has come", timerDue},
		{"due timers keep to the partitions and the limit", timerPartitions},
		{"timer is moved once", timerMoved},
		{"timer without a next time is gone", timerEnds},
		{"timer with poison is rejected", timerPoison},
	}
}

func (c chat) timer(id string, at time.Time) store.Timer {
	return store.Timer{
		ID: id, SKey: c.skey, Tenant: tenant, Spec: "0 9 * * *", Body: text("wake up"), NextAt: at.UTC().Truncate(time.Millisecond),
	}
}

func (e *env) putTimer(t tb, q store.Timer) {
	t.Helper()
	require.NoError(t, e.Store.PutTimer(t.Context(), q))
}

func (e *env) timers(t tb, c chat) []store.Timer {
	t.Helper()
	got, err := e.Store.Timers(t.Context(), c.skey)
	require.NoError(t, err)
	return got
}

func (e *env) dueTimers(t tb) []string {
	t.Helper()
	got, err := e.Store.DueTimers(t.Context(), allPartitions(), 100)
	require.NoError(t, err)
	var ids []string
	for _, q := range got {
		ids = append(ids, q.ID)
	}
	return ids
}

// requireTimers compares timers whose times may come in another zone.
func requireTimers(t tb, want, got []store.Timer) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.JSONEq(t, string(want[i].Body), string(got[i].Body))
		require.True(t, want[i].NextAt.Equal(got[i].NextAt), "%s is not %s", got[i].NextAt, want[i].NextAt)
		got[i].Body, got[i].NextAt = want[i].Body, want[i].NextAt
	}
	require.Equal(t, want, got)
}

func timerList(t *testing.T, e *env) {
	c, other := newChat("a"), newChat("b")
	require.Empty(t, e.timers(t, c))
	now := e.now(t)
	later, sooner := c.timer("t1", now.Add(2*time.Hour)), c.timer("t2", now.Add(time.Hour))
	for _, q := range []store.Timer{later, sooner, other.timer("t3", now)} {
		e.putTimer(t, q)
	}
	requireTimers(t, []store.Timer{sooner, later}, e.timers(t, c))
}

func timerReplaced(t *testing.T, e *env) {
	c := newChat("a")
	now := e.now(t)
	old, foreign := c.timer("t1", now), newChat("b").timer("t1", now)
	e.putTimer(t, old)
	require.ErrorIs(t, e.Store.PutTimer(t.Context(), foreign), store.ErrRejected)
	requireTimers(t, []store.Timer{old}, e.timers(t, c))
	next := c.timer("t1", now.Add(time.Hour))
	next.Spec, next.Body = "0 10 * * *", text("get up")
	e.putTimer(t, next)
	requireTimers(t, []store.Timer{next}, e.timers(t, c))
	require.Empty(t, e.timers(t, newChat("b")))
}

func timerDeleted(t *testing.T, e *env) {
	c := newChat("a")
	e.putTimer(t, c.timer("t1", e.now(t)))
	require.ErrorIs(t, e.Store.DeleteTimer(t.Context(), newChat("b").skey, "t1"), store.ErrNotFound)
	require.Len(t, e.timers(t, c), 1)
	require.NoError(t, e.Store.DeleteTimer(t.Context(), c.skey, "t1"))
	require.Empty(t, e.timers(t, c))
	require.Empty(t, e.dueTimers(t))
	require.ErrorIs(t, e.Store.DeleteTimer(t.Context(), c.skey, "t1"), store.ErrNotFound)
}

func timerDue(t *testing.T, e *env) {
	c := newChat("a")
	now := e.now(t)
	e.putTimer(t, c.timer("later", now.Add(3*time.Hour)))
	e.putTimer(t, c.timer("second", now.Add(2*time.Hour)))
	e.putTimer(t, newChat("b").timer("first", now.Add(time.Hour)))
	require.Empty(t, e.dueTimers(t))
	e.Advance(t, 150*time.Minute)
	require.Equal(t, []string{"first", "second"}, e.dueTimers(t))
	require.Equal(t, []string{"first", "second"}, e.dueTimers(t), "until somebody has moved them")
}

func timerPartitions(t *testing.T, e *env) {
	now := e.now(t)
	var chats []chat
	for i, name := range uids("chat", 5) {
		chats = append(chats, newChat(name))
		e.putTimer(t, chats[i].timer(name, now.Add(-time.Duration(i+1)*time.Hour)))
	}
	got, err := e.Store.DueTimers(t.Context(), allPartitions(), 2)
	require.NoError(t, err)
	require.Equal(t, []string{"chat-004", "chat-003"}, []string{got[0].ID, got[1].ID})
	got, err = e.Store.DueTimers(t.Context(), nil, 10)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = e.Store.DueTimers(t.Context(), []int{session.Partition(chats[0].skey)}, 10)
	require.NoError(t, err)
	require.NotEmpty(t, got)
	for _, q := range got {
		require.Equal(t, session.Partition(chats[0].skey), session.Partition(q.SKey))
	}
}

func timerMoved(t *testing.T, e *env) {
	c := newChat("a")
	e.putTimer(t, c.timer("t1", e.now(t).Add(-time.Minute)))
	due := e.timers(t, c)[0]
	next := due.NextAt.Add(24 * time.Hour)
	for i, want := range []bool{true, false} {
		moved, err := e.Store.MoveTimer(t.Context(), "t1", due.NextAt, next)
		require.NoError(t, err)
		require.Equal(t, want, moved, "try %d", i+1)
	}
	require.True(t, next.Equal(e.timers(t, c)[0].NextAt))
	require.Empty(t, e.dueTimers(t))
	moved, err := e.Store.MoveTimer(t.Context(), "t2", next, next)
	require.NoError(t, err)
	require.False(t, moved, "there is no such timer")
}

func timerEnds(t *testing.T, e *env) {
	c := newChat("a")
	e.putTimer(t, c.timer("t1", e.now(t).Add(-time.Minute)))
	due := e.timers(t, c)[0]
	moved, err := e.Store.MoveTimer(t.Context(), "t1", due.NextAt.Add(time.Second), time.Time{})
	require.NoError(t, err)
	require.False(t, moved)
	moved, err = e.Store.MoveTimer(t.Context(), "t1", due.NextAt, time.Time{})
	require.NoError(t, err)
	require.True(t, moved)
	require.Empty(t, e.timers(t, c))
	require.Empty(t, e.dueTimers(t))
}

func timerPoison(t *testing.T, e *env) {
	c := newChat("a")
	bad := c.timer("t1", e.now(t))
	bad.Body = []byte(`"\u0000"`)
	require.ErrorIs(t, e.Store.PutTimer(t.Context(), bad), store.ErrRejected)
	require.Empty(t, e.timers(t, c))
}
