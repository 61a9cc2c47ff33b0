package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

func admit(t *testing.T, s store.Store, msgs ...store.AdmitMessage) []store.Admitted {
	t.Helper()
	got, err := s.Admit(t.Context(), store.Admission{Messages: msgs})
	require.NoError(t, err)
	return got
}

func control(chat, uid string, change func(*store.AdmitMessage)) store.AdmitMessage {
	m := message(chat, uid)
	m.Kind, m.WantsRun = store.KindCommand, false
	change(&m)
	return m
}

// The sweeper gives a worker 10 s from the first stop of a run; one that is repeated must not put that off.
func TestAdmit_StopAtIsThatOfTheFirstStop(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	stop := func(uid string) store.AdmitMessage {
		return control("a", uid, func(m *store.AdmitMessage) { m.Kind, m.Stop = store.KindStop, true })
	}
	stopAt := func() *time.Time { return scan[*time.Time](t, conn, `select stop_at from sessions`) }
	a := admit(t, s, message("a", "m1"))[0]
	require.Nil(t, stopAt())
	admit(t, s, stop("m2"))
	first := stopAt()
	require.NotNil(t, first)
	admit(t, s, stop("m3"))
	require.Equal(t, first, stopAt())

	_, err := s.StopQueued(t.Context(), store.QueuedStop{SKey: message("a", "").SKey, Gen: a.Gen, RunID: a.RunID, From: 1, To: 3})
	require.NoError(t, err)
	require.Nil(t, stopAt())
	admit(t, s, message("a", "m4"), stop("m5"))
	require.NotEqual(t, first, stopAt(), "another run")
}

func TestReset_LeavesNothingThatWouldWakeOrStop(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	a := admit(t, s, message("a", "m1"))[0]
	exec(t, conn, `update sessions set state = 'waiting', wait_kind = 'approval', wake_at = now() + interval '1 h',
		stop_run = $1, stop_at = now(), attempt = 2, stall = 2`, a.RunID)
	admit(t, s, control("a", "m2", func(m *store.AdmitMessage) { m.Reset = true }))
	require.True(t, scan[bool](t, conn, `select state = 'idle' and wait_kind is null and wake_at is null and stop_run is null
		and stop_at is null and attempt = 0 and stall = 0 and wake_seq <= done_seq and want_seq <= done_seq from sessions`))
	require.True(t, scan[bool](t, conn, `select started_at = (select created_at from sessions) and ended_at >= started_at
		from conversations where end_reason = 'new'`), "the first conversation began with its session")
}

// An edit that had to wait for the end of the run must see that end.
func TestEdit_WaitsForTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	admit(t, s, message("a", "m1"))
	edit := control("a", "e1", func(m *store.AdmitMessage) { m.Edit = &store.InboxEdit{Seq: 1, Body: []byte(`"edited"`)} })
	got, err := blocked(t, connect(t, url), conn, `update sessions set done_seq = 1`, func() ([]store.Admitted, error) {
		return s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{edit}})
	})
	require.NoError(t, err)
	require.Equal(t, []store.Admitted{{}}, got)
	require.NotEqual(t, `"edited"`, scan[string](t, conn, `select body::text from inbox`))
}

// A worker that claims while the cancelled form waits for the row keeps the run.
func TestStopQueued_WaitsForTheClaim(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	a := admit(t, s, message("a", "m1"), control("a", "m2", func(m *store.AdmitMessage) { m.Stop = true }))
	got, err := blocked(t, connect(t, url), conn, `update sessions set state = 'running', owner = 'w/1'`, func() (store.FinishResult, error) {
		return s.StopQueued(t.Context(), store.QueuedStop{
			SKey: message("a", "").SKey, Gen: a[0].Gen, RunID: a[0].RunID, From: 1, To: 2, Replies: []store.NewReply{reply()},
		})
	})
	require.NoError(t, err)
	require.Equal(t, store.FinishResult{Outcome: store.FinishFenced}, got)
	require.Equal(t, store.Queued, store.SessionState(scan[string](t, conn, `select state from runs`)))
	require.Zero(t, scan[int](t, conn, `select count(*) from outbox`))
}

// blocked runs call while a transaction holds what sql has written, and commits it once the call waits for it.
func blocked[T any](t *testing.T, holder, watcher *pgx.Conn, sql string, call func() (T, error)) (T, error) {
	t.Helper()
	tx, err := holder.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // after a commit it says that there is none
	_, err = tx.Exec(t.Context(), sql)
	require.NoError(t, err)
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := call()
		done <- answer{v, err}
	}()
	await.True(t, 10*time.Second, func() bool {
		return scan[bool](t, watcher, `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`)
	})
	require.NoError(t, tx.Commit(t.Context()))
	got := <-done
	return got.value, got.err
}
