//go:build unix

package pgserver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// shared is the server of the test process, started when the first test asks for a database. It is the only way to
// hand something from TestMain to tests without a parameter.
//
//nolint:gochecknoglobals // see above; a test helper
var shared struct {
	mu     sync.Mutex
	active bool
	server *Server
}

// TestingM is what [testing.M] and the wrappers of it have in common.
type TestingM interface{ Run() int }

// Main runs the tests of a package with a shared server and exits. Call it in TestMain.
func Main(m TestingM) { os.Exit(Wrap(m).Run()) }

// Wrap is [Main] for those that have more to do after the tests, such as goleak.VerifyTestMain(pgserver.Wrap(m)).
func Wrap(m TestingM) TestingM { return wrapped{m} }

type wrapped struct{ m TestingM }

func (w wrapped) Run() int {
	shared.mu.Lock()
	shared.active = true
	shared.mu.Unlock()
	code := w.m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return code
	}
	if err := shared.server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgserver: stop:", err)
		return 1
	}
	return code
}

// Shared returns the server that the tests of this process share; [Main] has to run them.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.active {
		tb.Fatal("pgserver: call pgserver.Main in TestMain")
	}
	if shared.server == nil {
		// Not tb.Context(): the server serves later tests as well.
		s, err := Start(context.Background(), Options{NoFsync: true})
		if err != nil {
			tb.Fatal(err)
		}
		shared.server = s
	}
	return shared.server
}

// New starts a durable server for one test and stops it after it.
func New(tb testing.TB) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("pgserver: stop: %v", err)
		}
	})
	return s
}

// NewDatabase creates an empty database on the shared server, drops it after the test and returns its URL.
func NewDatabase(tb testing.TB) string {
	tb.Helper()
	return Shared(tb).NewDatabase(tb, "")
}

// NewDatabase creates a database as a copy of the template ("" = empty), drops it after the test and returns its URL.
// Nobody may be connected to the template.
func (s *Server) NewDatabase(tb testing.TB, template string) string {
	tb.Helper()
	url, name, err := s.createDatabase(tb.Context(), template)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// tb.Context() has ended here.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.exec(ctx, "drop database "+name+" with (force)"); err != nil {
			tb.Errorf("pgserver: drop database: %v", err)
		}
	})
	return url
}

// Template returns the name of a database for [Server.NewDatabase] to copy. The first call with a name creates it and
// lets prepare fill it; prepare has to close its connections. It stays until the server stops.
func (s *Server) Template(tb testing.TB, name string, prepare func(ctx context.Context, url string) error) string {
	tb.Helper()
	s.templates.Lock()
	defer s.templates.Unlock()
	if db, ok := s.templates.names[name]; ok {
		return db
	}
	url, db, err := s.createDatabase(tb.Context(), "")
	if err != nil {
		tb.Fatal(err)
	}
	if err := prepare(tb.Context(), url); err != nil {
		tb.Fatalf("pgserver: prepare template %s: %v", name, err)
	}
	if s.templates.names == nil {
		s.templates.names = map[string]string{}
	}
	s.templates.names[name] = db
	return db
}

func (s *Server) createDatabase(ctx context.Context, template string) (url, name string, err error) {
	if template == "" {
		template = "template1"
	}
	id := uuid.New()
	name = fmt.Sprintf("test_%x", id[:])
	if err := s.exec(ctx, fmt.Sprintf("create database %s template %s", name, template)); err != nil {
		return "", "", fmt.Errorf("create database: %w", err)
	}
	return s.databaseURL(name), name, nil
}

func (s *Server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}
