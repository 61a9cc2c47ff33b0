package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/bus/natsbus/embedded"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

// servers are PostgreSQL, Redis and NATS, each in processes of its own.
type servers struct {
	postgres *pgserver.Server
	redis    *redisserver.Server
	nats     *natsChild
	stats    *pgStats
}

// startServers starts all of them and creates the tables. PostgreSQL syncs to disk, NATS stores in files.
func startServers(ctx context.Context, dir string) (s *servers, err error) {
	s = &servers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(ctx))
		}
	}()
	if s.postgres, err = pgserver.Start(ctx, pgserver.Options{}); err != nil {
		return s, fmt.Errorf("start postgres: %w", err)
	}
	if s.redis, err = redisserver.Start(); err != nil {
		return s, fmt.Errorf("start redis: %w", err)
	}
	if s.nats, err = startNATS(dir); err != nil {
		return s, fmt.Errorf("start nats: %w", err)
	}
	if err = pgstore.Migrate(ctx, pgstore.Config{URL: s.postgres.URL()}); err != nil {
		return s, err // says what it is about
	}
	s.stats, err = openStats(ctx, s.postgres.URL())
	return s, err
}

func (s *servers) stop(ctx context.Context) error {
	var errs []error
	if s.stats != nil {
		errs = append(errs, s.stats.close(ctx))
	}
	if s.nats != nil {
		errs = append(errs, s.nats.stop())
	}
	if s.redis != nil {
		s.redis.Kill()
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
	}
	return errors.Join(errs...)
}

// pids finds the processes of the servers among the children of this one.
func (s *servers) pids() (map[string]int, error) {
	table, err := readProcesses(procRoot)
	if err != nil {
		return nil, err
	}
	pids := map[string]int{nameNATS: s.nats.cmd.Process.Pid}
	for _, p := range table {
		switch {
		case p.parent != os.Getpid():
		case p.command == "postgres":
			pids[namePostgres] = p.pid
		case strings.HasPrefix(p.command, "redis-server"):
			pids[nameRedis] = p.pid
		}
	}
	if pids[namePostgres] == 0 || pids[nameRedis] == 0 {
		return nil, errors.New("find the processes of postgres and redis: not among the children of this one")
	}
	return pids, nil
}

// natsChild is this program once more, as a NATS server; it ends with its standard input.
type natsChild struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func startNATS(dir string) (*natsChild, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-nats-store", dir+"/nats")
	cmd.Stderr = os.Stderr
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return nil, err
	}
	c := &natsChild{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the address: %w", err), c.stop())
	}
	c.url = strings.TrimSpace(line)
	return c, nil
}

func (c *natsChild) stop() error {
	// Closed twice is closed; a server that has ended shows by Wait.
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	return nil
}

// serveNATS is the child: it prints its address and serves until in ends. Signals do not end it, for an interrupt reaches
// the whole process group, and the parent needs the server to stop in order.
func serveNATS(storeDir string, in io.Reader, out io.Writer) error {
	server, err := embedded.Start(embedded.Options{StoreDir: storeDir})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, server.ClientURL())
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	return errors.Join(err, server.Stop())
}
