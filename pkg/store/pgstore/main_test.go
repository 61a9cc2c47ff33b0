package pgstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgserver.Wrap(m)) }

// database returns the URL of a fresh database that is migrated.
func database(tb testing.TB) string {
	tb.Helper()
	server := pgserver.Shared(tb)
	return server.NewDatabase(tb, server.Template(tb, "migrated", func(ctx context.Context, url string) error {
		return pgstore.Migrate(ctx, pgstore.Config{URL: url})
	}))
}

// open opens a store with few connections, as each is warmed.
func open(tb testing.TB, url string) *pgstore.Store {
	tb.Helper()
	s, err := pgstore.Open(tb.Context(), pgstore.Config{URL: url, Connections: 2})
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// connect opens a connection beside the store.
func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, conn.Close(context.Background())) })
	return conn
}

func exec(tb testing.TB, conn *pgx.Conn, sql string, args ...any) {
	tb.Helper()
	_, err := conn.Exec(tb.Context(), sql, args...)
	require.NoError(tb, err)
}

func scan[T any](tb testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	tb.Helper()
	var v T
	require.NoError(tb, conn.QueryRow(tb.Context(), sql, args...).Scan(&v))
	return v
}
