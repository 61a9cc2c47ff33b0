// Package natsserver starts real NATS servers with JetStream for tests, in this process.
package natsserver

import (
	"fmt"
	"net"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus/natsbus/embedded"
)

// Options of a server.
type Options struct {
	// Memory loses everything on Shutdown.
	Memory bool
	// StoreDir is required unless Memory is set.
	StoreDir string
	// Port 0 is a free one.
	Port int
}

// Server can be stopped and started again. It is not safe for concurrent use.
type Server struct {
	opts Options
	run  *embedded.Server
}

// Start returns when the server accepts connections.
func Start(o Options) (*Server, error) {
	s := &Server{opts: o}
	return s, s.start()
}

// New starts a server with file storage, which ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, Options{StoreDir: tb.TempDir()})
}

// NewMemory starts a server that forgets everything on Shutdown and ends with the test.
func NewMemory(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, Options{Memory: true})
}

func start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Start(o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Shutdown()) })
	return s
}

// IgnoreClock lets goleak pass over the clock that all servers of a process share: it goes on when two clients created
// one stream at the same moment, as the server then counts its users wrongly.
func IgnoreClock() goleak.Option {
	return goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1")
}

func (s *Server) start() error {
	run, err := embedded.Start(embedded.Options{Memory: s.opts.Memory, StoreDir: s.opts.StoreDir, Port: s.opts.Port})
	if err != nil {
		return fmt.Errorf("start nats: %w", err)
	}
	s.run = run
	s.opts.Port = run.Port()
	return nil
}

// URL is the address for clients. It stays the same after Restart.
func (s *Server) URL() string { return fmt.Sprintf("nats://%s", s.Addr()) }

// Addr is host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.opts.Port) }

// Server is the NATS server itself.
func (s *Server) Server() *server.Server { return s.run.Server() }

// InProcessConn opens a connection that needs no network.
func (s *Server) InProcessConn() (net.Conn, error) { return s.run.InProcessConn() }

// Shutdown waits until the server is down. It may be called twice.
func (s *Server) Shutdown() error { return s.run.Stop() }

// Restart ends the server and starts it again on the same port and, unless Memory is set, with what it had stored.
func (s *Server) Restart() error {
	if err := s.Shutdown(); err != nil {
		return err
	}
	return s.start()
}
