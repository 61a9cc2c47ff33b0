// Package redisserver starts real redis-server processes for tests, and an imitation for unit tests.
package redisserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	startTimeout  = 10 * time.Second
	commandTime   = time.Second
	pollInterval  = 5 * time.Millisecond
	startAttempts = 3
)

// ErrNotInstalled: there is no redis-server in the PATH.
var ErrNotInstalled = errors.New("redis-server not found in PATH: apt-get install redis-server")

// IgnoreProbes lets goleak pass over what the client library leaves behind when a server did not answer: after a failed
// connection it probes once a second, and notices that its client is closed only then.
func IgnoreProbes() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}

// Server is a redis-server process without persistence. It is not safe for concurrent use.
type Server struct {
	port int
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{}
}

// New starts a server that ends with the test. args are further arguments of redis-server.
func New(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := Start(args...)
	require.NoError(tb, err)
	tb.Cleanup(s.Kill)
	return s
}

// NewMini starts an imitation inside this process that ends with the test. Time passes only through FastForward.
func NewMini(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	require.NoError(tb, m.Start())
	tb.Cleanup(m.Close)
	return m
}

// Start returns when the server answers.
func Start(args ...string) (*Server, error) {
	var err error
	for range startAttempts { // somebody else may take the free port first
		var port int
		if port, err = freePort(); err != nil {
			return nil, err
		}
		s := &Server{port: port, args: args}
		if err = s.start(); err == nil || errors.Is(err, ErrNotInstalled) {
			return s, err
		}
	}
	return nil, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *Server) start() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return ErrNotInstalled
	}
	args := []string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"}
	s.log.Reset()
	s.cmd = exec.Command(path, append(args, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // a killed process always reports an error
	}()
	return s.awaitAnswer()
}

func (s *Server) awaitAnswer() error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if _, err := s.command("PING"); err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("redis-server ended: %s", s.log.String())
		case <-deadline.C:
			s.Kill()
			return fmt.Errorf("redis-server does not answer: %s", s.log.String())
		case <-ticker.C:
		}
	}
}

// command sends one command in the inline form and returns the first line of the answer. An error answer of the server
// (such as NOAUTH) is an answer.
func (s *Server) command(line string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), commandTime)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(commandTime)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the address for clients. It stays the same after RestartEmpty.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Kill ends the process at once and waits for it. It may be called twice.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill() // an error says that it has ended already
	<-s.done
}

// RestartEmpty kills the server and starts it again on the same port, without data.
func (s *Server) RestartEmpty() error {
	s.Kill()
	return s.start()
}

// FlushAll deletes all data.
func (s *Server) FlushAll() error {
	answer, err := s.command("FLUSHALL")
	if err != nil {
		return fmt.Errorf("flush redis: %w", err)
	}
	if answer != "+OK" {
		return fmt.Errorf("flush redis: %s", answer)
	}
	return nil
}
