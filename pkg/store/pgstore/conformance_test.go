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
		b := <-idle
		t.Cleanup(func() { idle <- b })
		b.empty(t)
		return storetest.Backend{
			Store: b.store, Advance: b.advance, TakeOver: b.takeOver,
			ToolCalls: b.toolCalls, DeadLetters: b.deadLetters, Workers: b.workers,
		}
	})
}

// backend looks at the tables beside the store.
type backend struct {
	store *pgstore.Store
	conn  *pgx.Conn
}

func (b backend) empty(t testing.TB) {
	t.Helper()
	tables := collect[struct{ Name string }](t, b.conn, `select relname from pg_class
		where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> 'goose_db_version'`)
	require.Len(t, tables, 14)
	for _, table := range tables {
		exec(t, b.conn, "delete from "+table.Name)
	}
}

func (b backend) advance(t testing.TB, d time.Duration) {
	t.Helper()
	exec(t, b.conn, `update sessions set queued_at = queued_at - $1::interval, touched_at = touched_at - $1::interval`, d)
	exec(t, b.conn, `update outbox set next_at = next_at - $1::interval, until = until - $1::interval,
		created_at = created_at - $1::interval`, d)
}

func (b backend) takeOver(t testing.TB, skey string) {
	t.Helper()
	exec(t, b.conn, `with s as (
			update sessions set gen = gen + 1, owner = null, state = 'queued', queued_at = now(), attempt = attempt + 1
			where skey = $1 returning run_id, gen
		)
		update runs set state = 'queued', owner = null, last_gen = s.gen from s where runs.run_id = s.run_id`, skey)
}

func (b backend) toolCalls(t testing.TB, runID uuid.UUID) []store.ToolCall {
	t.Helper()
	return collect[store.ToolCall](t, b.conn,
		`select call_id, name, effect, state, result from tool_calls where run_id = $1`, runID)
}

func (b backend) deadLetters(t testing.TB) []store.DeadLetter {
	t.Helper()
	return collect[store.DeadLetter](t, b.conn, `select id, kind, ref, reason, payload from dead_letters`)
}

func (b backend) workers(t testing.TB) []store.WorkerBeat {
	t.Helper()
	return collect[store.WorkerBeat](t, b.conn, `select worker_id, boot, slots, used, draining from workers`)
}

func collect[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) []T {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	require.NoError(t, err)
	return out
}
