package pgstore_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

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
		return storetest.Backend{Store: b.store, Advance: b.advance}
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

// advance moves all rows into the past, but for the conversations and the offsets.
func (b backend) advance(tb testing.TB, d time.Duration) {
	tb.Helper()
	columns := collect[struct{ Table, Set string }](tb, b.conn, `select relname,
			string_agg(format('%1$I = %1$I - $1::interval', attname), ', ')
		from pg_class c join pg_attribute a on a.attrelid = c.oid
		where relnamespace = 'public'::regnamespace and relkind = 'r'
			and relname not in ('goose_db_version', 'conversations', 'ingest_offsets')
			and atttypid = 'timestamptz'::regtype and attnum > 0 and not attisdropped
		group by relname`)
	for _, c := range columns {
		exec(tb, b.conn, "update "+c.Table+" set "+c.Set, d)
	}
}

func collect[T any](tb testing.TB, conn *pgx.Conn, sql string, args ...any) []T {
	tb.Helper()
	rows, err := conn.Query(tb.Context(), sql, args...)
	require.NoError(tb, err)
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	require.NoError(tb, err)
	return out
}
