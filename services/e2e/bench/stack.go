package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"text/template"
	"time"
)

// Names of processes in the tables.
const (
	nameIngress  = "ingress"
	nameRouter   = "router"
	nameWorker   = "worker"
	nameEgress   = "egress"
	namePostgres = "postgres"
	nameRedis    = "redis"
	nameNATS     = "nats"
	nameClients  = "clients and receiver"
)

// serviceNames in the order of their start: whoever fills a queue comes after whoever empties it.
func serviceNames() []string { return []string{nameEgress, nameWorker, nameRouter, nameIngress} }

// build compiles the services into dir as they ship.
func build(ctx context.Context, dir string) (bin string, err error) {
	progress("building services")
	bin = filepath.Join(dir, "bin")
	args := []string{"build", "-ldflags", "-s -w", "-o", bin + "/"}
	for _, name := range serviceNames() {
		args = append(args, "github.com/hermes-runtime/hermes/services/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build services: %w", err)
	}
	return bin, nil
}

// channelName is the webhook channel of the benchmark, inSecret signs what comes in, outSecret what goes out.
const (
	channelName = "bench"
	inSecret    = "whsec_aW5jb21pbmctc2VjcmV0LWZvci1iZW5jaA=="
	outSecret   = "whsec_b3V0Z29pbmctc2VjcmV0LWZvci1iZW5jaA=="
)

// configuration has what the benchmark needs and leaves the rest at the defaults.
const configuration = `
profiles: {default: {provider: demo, tools: []}}
providers: {demo: {kind: demo}}
channels:
  {{.Channel}}:
    platform: webhook
    webhook: {secrets: ["env:BENCH_IN_SECRET"], reply_url: "{{.Reply}}", reply_secret: "env:BENCH_OUT_SECRET", allow_private: true}
ingress: {addr: "{{.Door}}"}
nats: {url: "{{.NATS}}"}
redis: {url: "{{.Redis}}"}
postgres: {url: "{{.Postgres}}"}
worker: {grace: 30s}
`

// stack is the services, one process each.
type stack struct {
	door      string
	dir       string
	processes []*process
}

// startStack starts the services and returns when all of them are ready. Replies are posted to replyURL.
func startStack(ctx context.Context, bin, dir string, s *servers, replyURL string) (_ *stack, err error) {
	k := &stack{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.stop())
		}
	}()
	if k.door, err = freeAddr(ctx); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := template.Must(template.New("").Parse(configuration)).Execute(&text, map[string]string{
		"Channel": channelName, "Reply": replyURL, "Door": k.door,
		"NATS": s.nats.url, "Redis": s.redis.URL(), "Postgres": s.postgres.URL(),
	}); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	file := filepath.Join(dir, "hermes.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	for _, name := range serviceNames() {
		if err := k.run(ctx, filepath.Join(bin, name), file); err != nil {
			return nil, err
		}
	}
	for _, p := range k.processes {
		if err := p.awaitReady(ctx); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, p.tail())
		}
	}
	return k, nil
}

// process is a running service.
type process struct {
	name, admin, log string
	cmd              *exec.Cmd
	done             chan struct{}
	err              error
}

func (k *stack) run(ctx context.Context, path, config string) error {
	name := filepath.Base(path)
	admin, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	p := &process{name: name, admin: admin, log: filepath.Join(k.dir, name+".log"), cmd: exec.Command(path), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "HERMES_CONFIG="+config, "HERMES_ADMIN_ADDR="+admin,
		"BENCH_IN_SECRET="+inSecret, "BENCH_OUT_SECRET="+outSecret)
	// Out of the process group: an interrupt ends the clients first, then the services in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(p.log)
	if err != nil {
		return fmt.Errorf("create log of %s: %w", name, err)
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	k.processes = append(k.processes, p)
	return nil
}

const (
	readyTimeout = 60 * time.Second
	readyPoll    = 50 * time.Millisecond
	stopTimeout  = 40 * time.Second
)

func (p *process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	for {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while it started: %w", p.name, p.err)
		default:
		}
		if ready(ctx, client, "http://"+p.admin+"/readyz") {
			return nil
		}
		if err := wait(ctx, readyPoll); err != nil {
			return fmt.Errorf("wait until %s is ready: %w", p.name, err)
		}
	}
}

// ready: a process that does not answer is not ready.
func ready(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// tail is the end of the log.
func (p *process) tail() string {
	const most = 4 << 10
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-most):])
}

// logs is the end of every log, for a run that failed.
func (k *stack) logs() string {
	var b bytes.Buffer
	for _, p := range k.processes {
		fmt.Fprintf(&b, "--- %s\n%s", p.name, p.tail())
	}
	return b.String()
}

// stop ends the services, all at once, and waits for them.
func (k *stack) stop() error {
	errs := make([]error, len(k.processes))
	var wg sync.WaitGroup
	for i, p := range k.processes {
		wg.Go(func() { errs[i] = p.terminate() })
	}
	wg.Wait()
	k.processes = nil
	return errors.Join(errs...)
}

func (p *process) terminate() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.tail())
		}
		return nil
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill() // the error below tells
		<-p.done
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, stopTimeout)
	}
}

// freeAddr returns a loopback address that was free a moment ago.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
