package pgstore_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/store/storetest"
)

// Cases take turns on a few databases: to create one for each would take longer than all cases.
func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	idle := make(chan backend, runtime.GOMAXPROCS(0))
	for range cap(idle) {
		url := database(t)
		idle <- backend{open(t, url), connect(t, url)}
	}
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		b := <-idle
		t.Cleanup(func() { idle <- b })
		b.empty(t)
		return storetest.Backend{
			Store: b.store, Advance: b.advance, TakeOver: b.takeOver,
			Suspend: b.suspend, Conversations: b.conversations, ToolCalls: b.toolCalls, DeadLetters: b.deadLetters, Workers: b.workers,
		}
	})
}

// backend looks at the tables beside the store.
type backend struct {
	store *pgstore.Store
	conn  *pgx.Conn
}

func (b backend) empty(tb testing.TB) {
	tb.Helper()
	tables := collect[struct{ Name string }](tb, b.conn, `select relname from pg_class
		where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> 'goose_db_version'`)
	require.Len(tb, tables, 14)
	for _, table := range tables {
		exec(tb, b.conn, "delete from "+table.Name)
	}
}

func (b backend) advance(tb testing.TB, d time.Duration) {
	tb.Helper()
	exec(tb, b.conn, `update sessions set queued_at = queued_at - $1::interval, touched_at = touched_at - $1::interval`, d)
	exec(tb, b.conn, `update outbox set next_at = next_at - $1::interval, until = until - $1::interval,
		created_at = created_at - $1::interval`, d)
}

func (b backend) takeOver(tb testing.TB, skey string) {
	tb.Helper()
	exec(tb, b.conn, `with s as (
			update sessions set gen = gen + 1, owner = null, state = 'queued', queued_at = now(), attempt = attempt + 1
			where skey = $1 returning run_id, gen
		)
		update runs set state = 'queued', owner = null, last_gen = s.gen from s where runs.run_id = s.run_id`, skey)
}

func (b backend) suspend(tb testing.TB, skey string, to store.SessionState) {
	tb.Helper()
	exec(tb, b.conn, `with s as (
			update sessions set gen = gen + 1, owner = null, state = $2 where skey = $1 returning run_id, gen
		)
		update runs set state = 'waiting', owner = null, last_gen = s.gen from s where runs.run_id = s.run_id`, skey, string(to))
}

func (b backend) conversations(tb testing.TB, skey string) []storetest.Conversation {
	tb.Helper()
	return collect[storetest.Conversation](tb, b.conn, `select session_id, ended_at is not null, coalesce(end_reason, '')
		from conversations where skey = $1 order by started_at`, skey)
}

func (b backend) toolCalls(tb testing.TB, runID uuid.UUID) []store.ToolCall {
	tb.Helper()
	return collect[store.ToolCall](tb, b.conn,
		`select call_id, name, effect, state, result from tool_calls where run_id = $1`, runID)
}

func (b backend) deadLetters(tb testing.TB) []store.DeadLetter {
	tb.Helper()
	return collect[store.DeadLetter](tb, b.conn, `select id, kind, ref, reason, payload from dead_letters`)
}

func (b backend) workers(tb testing.TB) []store.WorkerBeat {
	tb.Helper()
	return collect[store.WorkerBeat](tb, b.conn, `select worker_id, boot, slots, used, draining from workers`)
}

func collect[T any](tb testing.TB, conn *pgx.Conn, sql string, args ...any) []T {
	tb.Helper()
	rows, err := conn.Query(tb.Context(), sql, args...)
	require.NoError(tb, err)
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	require.NoError(tb, err)
	return out
}
