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
func database(t testing.TB) string {
	t.Helper()
	server := pgserver.Shared(t)
	return server.NewDatabase(t, server.Template(t, "migrated", func(ctx context.Context, url string) error {
		return pgstore.Migrate(ctx, pgstore.Config{URL: url})
	}))
}

// open opens a store with few connections, as each is warmed.
func open(t testing.TB, url string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), pgstore.Config{URL: url, Connections: 2})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// connect opens a connection beside the store.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func scan[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}
