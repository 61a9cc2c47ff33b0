//go:build unix

package pgserver_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgserver.Wrap(m)) }

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	var value string
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

func TestNew_IsDurableAndRoomy(t *testing.T) {
	t.Parallel()
	s := pgserver.New(t)
	require.Equal(t, "on", query(t, s.URL(), "show fsync"))
	require.Equal(t, "200", query(t, s.URL(), "show max_connections"))
}

func TestServer_RestartKeepsWhatWasCommittedBeforeTheKill(t *testing.T) {
	t.Parallel()
	s := pgserver.New(t)
	exec(t, s.URL(), "create table t as select 7 as n")
	require.NoError(t, s.Kill())
	_, err := pgx.Connect(t.Context(), s.URL())
	require.Error(t, err)
	require.NoError(t, s.Restart(t.Context()))
	require.Equal(t, "7", query(t, s.URL(), "select n::text from t"))
}

func TestStart_AppliesOptions(t *testing.T) {
	t.Parallel()
	s, err := pgserver.Start(t.Context(), pgserver.Options{NoFsync: true, Settings: map[string]string{"wal_writer_delay": "2s"}})
	require.NoError(t, err)
	require.Equal(t, "off", query(t, s.URL(), "show fsync"))
	require.Equal(t, "2s", query(t, s.URL(), "show wal_writer_delay"))
	require.NoError(t, s.Stop())
	require.NoError(t, s.Stop(), "stopping twice is fine")
}

func TestNewDatabase_IsEmptyAndSeparate(t *testing.T) {
	t.Parallel()
	a, b := pgserver.NewDatabase(t), pgserver.NewDatabase(t)
	require.NotEqual(t, query(t, a, "select current_database()"), query(t, b, "select current_database()"))
	require.Equal(t, "0", query(t, a, "select count(*)::text from pg_class where relnamespace = 'public'::regnamespace"))
}

func TestNewDatabase_CopiesTheTemplate(t *testing.T) {
	t.Parallel()
	s := pgserver.Shared(t)
	made := 0
	for range 2 {
		template := s.Template(t, "copied", func(_ context.Context, url string) error {
			made++
			exec(t, url, "create table t as select 'copied' as v")
			return nil
		})
		require.Equal(t, "copied", query(t, s.NewDatabase(t, template), "select v from t"))
	}
	require.Equal(t, 1, made)
}
