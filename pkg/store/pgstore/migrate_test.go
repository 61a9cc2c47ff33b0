package pgstore_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
)

func TestMigrate_RepeatedChangesNothing(t *testing.T) {
	t.Parallel()
	cfg := pgstore.Config{URL: pgserver.NewDatabase(t)}
	conn := connect(t, cfg.URL)
	const objects = `select count(*) from pg_class where relnamespace = 'public'::regnamespace`

	pending, err := pgstore.Pending(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3}, pending)
	require.Zero(t, scan[int](t, conn, objects), "asking changes nothing")

	require.NoError(t, pgstore.Migrate(t.Context(), cfg))
	made := scan[int](t, conn, objects)
	require.NoError(t, pgstore.Migrate(t.Context(), cfg))
	require.Equal(t, made, scan[int](t, conn, objects))
	require.Equal(t, 14, scan[int](t, conn, `select count(*) from pg_class
		where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> 'goose_db_version'`))
	pending, err = pgstore.Pending(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, pending)
}

func TestMigrate_ConcurrentStartsMigrateOnce(t *testing.T) {
	t.Parallel()
	cfg := pgstore.Config{URL: pgserver.NewDatabase(t)}
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = pgstore.Migrate(t.Context(), cfg) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 1, scan[int](t, connect(t, cfg.URL), `select count(*) from goose_db_version where version_id = 1`))
}

func TestMigrate_LeavesStatistics(t *testing.T) {
	t.Parallel()
	conn := connect(t, database(t))
	require.Zero(t, scan[int](t, conn, `select count(*) from pg_class
		where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> 'goose_db_version' and reltuples < 0`),
		"a table that was never analysed has reltuples -1")
}

func TestOpen_RefusesADatabaseThatIsNotMigrated(t *testing.T) {
	t.Parallel()
	_, err := pgstore.Open(t.Context(), pgstore.Config{URL: pgserver.NewDatabase(t)})
	require.ErrorIs(t, err, pgstore.ErrNotMigrated)
	require.ErrorContains(t, err, "hermes migrate")
}

func TestOpen_WritesNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	open(t, url)
	conn := connect(t, url)
	for _, table := range []string{
		"sessions", "inbox", "runs", "messages", "tool_calls", "outbox", "dead_letters",
		"inbox_items", "conversations", "aliases", "previews",
	} {
		require.Zero(t, scan[int](t, conn, "select count(*) from "+table), table)
	}
}

func TestOpen_PasswordTakesThePlaceOfTheOneInTheURL(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start(t.Context(), pgserver.Options{NoFsync: true, Password: "right"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	url := strings.Replace(server.URL(), ":right@", "@", 1)

	require.NoError(t, pgstore.Migrate(t.Context(), pgstore.Config{URL: url, Password: "right"}))
	s, err := pgstore.Open(t.Context(), pgstore.Config{URL: url, Password: "right", Connections: 1})
	require.NoError(t, err)
	s.Close()
	_, err = pgstore.Open(t.Context(), pgstore.Config{URL: url, Password: "wrong", Connections: 1})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.NotContains(t, err.Error(), "wrong")
}

func TestOpen_WithoutAServerIsUnavailable(t *testing.T) {
	t.Parallel()
	_, err := pgstore.Open(t.Context(), pgstore.Config{URL: "postgres://nobody@127.0.0.1:1/none?sslmode=disable"})
	require.ErrorIs(t, err, store.ErrUnavailable)
}

func TestOpen_MalformedURLIsNotUnavailable(t *testing.T) {
	t.Parallel()
	_, err := pgstore.Open(t.Context(), pgstore.Config{URL: "postgres://host:port/"})
	require.ErrorContains(t, err, "url")
	require.NotErrorIs(t, err, store.ErrUnavailable)
}
