// Package embedded runs a NATS server with JetStream inside this process: for `hermes dev` and for tests.
//
// The server is a single node. Its durability profile is "process": what is stored survives the end of the process, but
// a power loss may take what was written within the last sync interval.
package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	startTimeout = 10 * time.Second
	syncInterval = 10 * time.Second
	maxPayload   = 1 << 20
	// The store limits bound what streams may reserve together; the streams' own limits bound what they hold. Without
	// them the server would derive limits from free memory and disk, and small machines could not create the streams.
	maxMemory = 64 << 30
	maxStore  = 1 << 40
)

// ErrNotReady: the server did not accept connections in time.
var ErrNotReady = errors.New("embedded nats: not ready in time")

// Options of a server.
type Options struct {
	// StoreDir keeps file streams. It is required unless Memory is set.
	StoreDir string
	// Memory keeps nothing beyond Stop.
	Memory bool
	// Host is the listen address, "" = 127.0.0.1.
	Host string
	// Port 0 lets the system choose.
	Port int
	// InProcessOnly opens no port at all; clients connect through Server.
	InProcessOnly bool
}

// Server is a running server.
type Server struct {
	srv     *server.Server
	scratch string
}

// Start returns when the server accepts connections.
func Start(o Options) (*Server, error) {
	if o.StoreDir == "" && !o.Memory {
		return nil, errors.New("embedded nats: no store directory")
	}
	s := &Server{}
	if o.Memory {
		// The server wants a directory even where no stream uses it, and would share a fixed one with its neighbours.
		dir, err := os.MkdirTemp("", "hermes-nats-")
		if err != nil {
			return nil, fmt.Errorf("embedded nats: store directory: %w", err)
		}
		s.scratch, o.StoreDir = dir, dir
	}
	if err := s.start(o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) start(o Options) error {
	if err := checkPort(o); err != nil {
		return err
	}
	srv, err := server.NewServer(serverOptions(o))
	if err != nil {
		return fmt.Errorf("embedded nats: %w", err)
	}
	s.srv = srv
	srv.Start()
	if !srv.ReadyForConnections(startTimeout) {
		return ErrNotReady
	}
	return nil
}

// checkPort reports a port that is in use; the server itself would only never become ready.
func checkPort(o Options) error {
	if o.InProcessOnly || o.Port == 0 {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(listenHost(o), strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("embedded nats: %w", err)
	}
	return l.Close()
}

func listenHost(o Options) string { return cmp.Or(o.Host, "127.0.0.1") }

func serverOptions(o Options) *server.Options {
	return &server.Options{
		ServerName:             "hermes",
		Host:                   listenHost(o),
		Port:                   cmp.Or(o.Port, server.RANDOM_PORT),
		DontListen:             o.InProcessOnly,
		NoLog:                  true,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		MaxPayload:             maxPayload,
		JetStream:              true,
		StoreDir:               o.StoreDir,
		SyncInterval:           syncInterval,
		JetStreamMaxMemory:     maxMemory,
		JetStreamMaxStore:      maxStore,
	}
}

// ClientURL is the address for clients in other processes.
func (s *Server) ClientURL() string { return s.srv.ClientURL() }

// Port is the port that the server listens on; 0 if it opened none.
func (s *Server) Port() int {
	if addr, ok := s.srv.Addr().(*net.TCPAddr); ok {
		return addr.Port
	}
	return 0
}

// InProcessConn opens a connection that needs no network, see natsbus.Config.InProcess.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// Server is the NATS server itself.
func (s *Server) Server() *server.Server { return s.srv }

// Stop waits until the server is down. It may be called twice.
func (s *Server) Stop() error {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
	if s.scratch == "" {
		return nil
	}
	if err := os.RemoveAll(s.scratch); err != nil {
		return fmt.Errorf("embedded nats: remove store directory: %w", err)
	}
	return nil
}
