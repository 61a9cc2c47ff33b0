//go:build unix

// Package pgserver starts throw-away PostgreSQL servers for tests from the binaries on the machine.
//
// A package whose tests need a database calls [Main] in its TestMain and [NewDatabase] in its tests: all of them share
// one server, each has a database of its own. Tests that stop or kill a server start theirs with [New].
// A machine without PostgreSQL is an error that says what to install, never a skipped test.
package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser    = "postgres"
	readyTimeout = 30 * time.Second
)

// Options of a server; the zero value is a durable server with the defaults of PostgreSQL.
type Options struct {
	// NoFsync trades durability across a power loss for speed; a killed server still recovers.
	NoFsync bool
	// Password, if set, is asked for; it is part of the URLs.
	Password string
	// Settings are further server settings, such as wal_writer_delay.
	Settings map[string]string
}

// Server is a PostgreSQL server on a free port of 127.0.0.1 with its data in a directory of its own.
type Server struct {
	bin, dir string
	port     int
	as       *syscall.Credential
	opts     Options

	mu   sync.Mutex // guards proc
	proc *process

	templates struct {
		sync.Mutex
		names map[string]string
	}
}

// Start creates a server and returns when it accepts connections.
func Start(ctx context.Context, opts Options) (*Server, error) {
	bin, err := findBinaries(ctx, packageRoot)
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, as: as, opts: opts}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// maxStarts bounds the ports that are tried.
const maxStarts = 3

// begin starts the server for the first time. Its port was free a moment ago; if somebody has taken it since, it gets
// another one.
func (s *Server) begin(ctx context.Context) (err error) {
	for try := 1; ; try++ {
		if err = s.Restart(ctx); !errors.Is(err, errEnded) || try == maxStarts {
			return err
		}
		if s.port, err = freePort(ctx); err != nil {
			return err
		}
	}
}

// errEnded: the process is gone before it has answered.
var errEnded = errors.New("postgres ended while it started")

// URL returns the connection URL of the server's own database, as superuser.
func (s *Server) URL() string { return s.databaseURL("postgres") }

func (s *Server) databaseURL(name string) string {
	user := url.User(superuser)
	if s.opts.Password != "" {
		user = url.UserPassword(superuser, s.opts.Password)
	}
	u := url.URL{
		Scheme: "postgres", User: user,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + name, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Stop ends the server in order and removes its data.
func (s *Server) Stop() error {
	return errors.Join(s.signal(syscall.SIGINT), os.RemoveAll(s.dir))
}

// Kill ends the server at once, without a checkpoint; what was not synced is lost as in a crash. [Server.Restart]
// recovers it.
func (s *Server) Kill() error { return s.signal(syscall.SIGQUIT) }

// Restart starts the server again on the same port and returns when it accepts connections; a running one is ended in
// order before.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.signal(syscall.SIGINT); err != nil {
		return err
	}
	var log bytes.Buffer
	cmd := s.command("postgres", append([]string{"-D", s.data()}, s.settings()...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	proc, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	if err := s.awaitReady(ctx, proc); err != nil {
		return errors.Join(err, s.Kill(), fmt.Errorf("server log: %s", log.String()))
	}
	return nil
}

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	proc := s.proc
	s.mu.Unlock()
	if proc == nil {
		return nil
	}
	return proc.end(sig)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// create makes the data directory and finds a port.
func (s *Server) create(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "pgserver-")
	if err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	s.dir = dir
	if s.as != nil {
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return fmt.Errorf("give directory to the server's user: %w", err)
		}
	}
	if s.port, err = freePort(ctx); err != nil {
		return err
	}
	auth, err := s.authentication()
	if err != nil {
		return err
	}
	args := append([]string{"-D", s.data(), "-U", superuser, "-E", "UTF8", "--locale=C", "--no-sync"}, auth...)
	cmd := s.command("initdb", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// authentication returns the arguments of initdb that say who is let in.
func (s *Server) authentication() ([]string, error) {
	if s.opts.Password == "" {
		return []string{"--auth=trust"}, nil
	}
	file := filepath.Join(s.dir, "password")
	if err := os.WriteFile(file, []byte(s.opts.Password+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write password: %w", err)
	}
	if s.as != nil {
		if err := os.Chown(file, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, fmt.Errorf("give password to the server's user: %w", err)
		}
	}
	return []string{"--auth=scram-sha-256", "--pwfile=" + file}, nil
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = sysProcAttr(s.as)
	return cmd
}

func (s *Server) settings() []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": s.dir,
		"max_connections":         "200",
		"fsync":                   "on",
		"timezone":                "UTC",
	}
	if s.opts.NoFsync {
		all["fsync"] = "off"
	}
	for k, v := range s.opts.Settings {
		all[k] = v
	}
	var args []string
	for k, v := range all {
		args = append(args, "-c", k+"="+v)
	}
	return args
}

func (s *Server) awaitReady(ctx context.Context, proc *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ticker.C:
		case <-proc.done:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("wait until postgres is ready: %w", err)
		}
	}
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}
