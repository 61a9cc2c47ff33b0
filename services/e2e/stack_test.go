package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/webhook"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

// bin is the folder of the service binaries, built once by TestMain.
var bin string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hermes-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	build := exec.Command("go", "build", "-o", dir+"/", "../ingress", "../router", "../worker", "../toolexec", "../egress", "../api", "../hermes")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the services:", err)
		return 1
	}
	bin = dir
	return m.Run()
}

// inSecret signs what comes in, outSecret what goes out.
const (
	inSecret  = "whsec_aW5jb21pbmctc2VjcmV0LWZvci10ZXN0cw=="
	outSecret = "whsec_b3V0Z29pbmctc2VjcmV0LWZvci10ZXN0cw=="
	apiKey    = "key-of-the-tests"

	telegramToken = "666:token-of-the-tests"
	telegramUser  = 111
)

// stack is the runtime on its servers. Every process has the same configuration file.
type stack struct {
	t        *testing.T
	nats     *natsserver.Server
	redis    *redisserver.Server
	postgres *pgserver.Server
	receiver *webhook.Receiver
	dir      string
	hooks    string
	api      string
	config   string

	mu        sync.Mutex
	processes []*process
}

// options of a stack. Counts of 0 mean 1.
type options struct {
	routers, workers, egress int
	// model is the base URL of an OpenAI-compatible server; "" is the demo model.
	model string
	// otlp is the address of a collector.
	otlp string
	// extra is appended to the configuration.
	extra string
	// toolHosts is what http_request may reach besides nothing.
	toolHosts string
	// profile is added to the profile that answers, as flow YAML.
	profile string
	// noWorker leaves the workers out.
	noWorker bool
	// telegram is a Bot API server on which the stack has a bot, by webhook or by polling.
	telegram        string
	telegramWebhook bool
}

// start starts servers and processes and returns when all of them are ready.
func start(t *testing.T, o options) *stack {
	t.Helper()
	s := prepare(t, o)
	s.run("toolexec", 0)
	for i := range max(1, o.egress) {
		s.run("egress", i)
	}
	for i := range max(1, o.workers) {
		if !o.noWorker {
			s.run("worker", i)
		}
	}
	for i := range max(1, o.routers) {
		s.run("router", i)
	}
	s.run("ingress", 0)
	s.run("api", 0)
	for _, p := range s.processes {
		p.awaitReady()
	}
	return s
}

// prepare starts the servers only and writes the configuration.
func prepare(t *testing.T, o options) *stack {
	t.Helper()
	s := &stack{t: t, dir: t.TempDir(), nats: natsserver.New(t), redis: redisserver.New(t), postgres: pgserver.New(t)}
	receiver, err := webhook.Start(t.Context(), "127.0.0.1:0", outSecret)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, receiver.Close()) })
	s.receiver = receiver
	s.hooks, s.api = freeAddr(t), freeAddr(t)
	s.config = filepath.Join(s.dir, "hermes.yaml")
	s.configure(o)
	out, err := s.command("hermes", "migrate").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Cleanup(s.stop)
	return s
}

const configuration = `
profiles: {default: {provider: {{if .Model}}local{{else}}demo{{end}}, tools: ["*"]{{if .Profile}}, {{.Profile}}{{end}}}}
providers:
  demo: {kind: demo}
  {{if .Model}}local: {kind: openai, base_url: "{{.Model}}", model: test, api_key: "env:E2E_MODEL_KEY"}{{end}}
channels:
  ci:
    platform: webhook
    webhook: {secrets: ["env:E2E_IN_SECRET"], reply_url: "{{.Reply}}", reply_secret: "env:E2E_OUT_SECRET", allow_private: true}
  {{if .Telegram}}bot: {platform: telegram, telegram: {token: "env:E2E_TELEGRAM_TOKEN", api_url: "{{.Telegram}}", allow_users: ["{{.User}}"],
    {{if .Webhook}}mode: webhook, webhook_secret: "env:E2E_TELEGRAM_SECRET", webhook_url: "{{.Webhook}}"{{end}} }}{{end}}
api: {addr: "{{.API}}", keys: {tests: {secret: "env:E2E_API_KEY", user: tester}}}
ingress: {addr: "{{.Hooks}}"}
nats: {url: "{{.NATS}}"}
redis: {url: "{{.Redis}}"}
postgres: {url: "{{.Postgres}}", connections: 2}
worker: {toolexec_addr: "{{.Tools}}", grace: 30s}
toolexec: {addr: "{{.Tools}}", workspaces: "{{.Dir}}/workspaces"{{if .ToolHosts}}, allow_hosts: ["{{.ToolHosts}}"]{{end}}}
{{if .OTLP}}telemetry: {otlp_endpoint: "{{.OTLP}}", otlp_insecure: true}{{end}}
{{.Extra}}
`

func (s *stack) configure(o options) {
	s.t.Helper()
	var hook string
	if o.telegramWebhook {
		hook = "http://" + s.hooks + "/v1/telegram/bot"
	}
	var b bytes.Buffer
	require.NoError(s.t, template.Must(template.New("").Parse(configuration)).Execute(&b, map[string]string{
		"Model": o.model, "Reply": s.receiver.URL(), "API": s.api, "Hooks": s.hooks, "NATS": s.nats.URL(), "Redis": s.redis.URL(),
		"Postgres": s.postgres.URL(), "Tools": freeAddr(s.t), "Dir": s.dir, "OTLP": o.otlp, "Extra": o.extra,
		"Telegram": o.telegram, "Profile": o.profile, "ToolHosts": o.toolHosts, "User": strconv.Itoa(telegramUser), "Webhook": hook,
	}))
	require.NoError(s.t, os.WriteFile(s.config, b.Bytes(), 0o600))
}

func (s *stack) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = append(os.Environ(),
		"HERMES_CONFIG="+s.config, "HERMES_ADMIN_ADDR=127.0.0.1:0",
		"E2E_MODEL_KEY=sk-test", "E2E_IN_SECRET="+inSecret, "E2E_OUT_SECRET="+outSecret, "E2E_API_KEY="+apiKey, "E2E_TELEGRAM_TOKEN="+telegramToken, "E2E_TELEGRAM_SECRET=secret_of-the-tests")
	return cmd
}

// endWithTests ends a process with this one: a test binary that is killed or runs out of time stops nothing by itself.
func endWithTests() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// process is one running service.
type process struct {
	t    *testing.T
	name string
	// id is what a worker calls itself in claims.
	id    string
	cmd   *exec.Cmd
	admin string
	log   *os.File
	done  chan struct{}
	err   error
}

func (s *stack) run(name string, n int, env ...string) *process {
	s.t.Helper()
	p := &process{t: s.t, name: fmt.Sprintf("%s-%d", name, n), admin: freeAddr(s.t), done: make(chan struct{})}
	p.cmd = s.command(name)
	p.cmd.Env = append(append(p.cmd.Env, "HERMES_ADMIN_ADDR="+p.admin), env...)
	if name == "worker" {
		p.id = p.name
		p.cmd.Env = append(p.cmd.Env, "HERMES_WORKER_ID="+p.id)
	}
	var err error
	p.log, err = os.Create(filepath.Join(s.dir, p.name+".log"))
	require.NoError(s.t, err)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = endWithTests()
	require.NoError(s.t, p.cmd.Start())
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	return p
}

// named returns the running process of a name.
func (s *stack) named(name string) *process {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.processes, func(p *process) bool { return p.name == name })
	require.GreaterOrEqual(s.t, i, 0, name)
	return s.processes[i]
}

// kill sends SIGKILL and waits; the end of the test does not expect the process to drain.
func (s *stack) kill(p *process) {
	s.t.Helper()
	require.NoError(s.t, p.cmd.Process.Kill())
	<-p.done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = slices.DeleteFunc(s.processes, func(o *process) bool { return o == p })
}

func (p *process) awaitReady() {
	p.t.Helper()
	await.NoError(p.t, 60*time.Second, func() error {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w", p.name, p.err)
		default:
		}
		code, body, err := get("http://"+p.admin+"/readyz", "")
		if err != nil || code != 200 {
			return fmt.Errorf("%s: %d %s %w", p.name, code, body, err)
		}
		return nil
	})
}

// terminate sends SIGTERM and waits for the end.
func (p *process) terminate() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
		return p.err
	case <-time.After(40 * time.Second):
		_ = p.cmd.Process.Kill() // the test fails with what follows
		return fmt.Errorf("%s did not end within 40 s of SIGTERM", p.name)
	}
}

// stop ends every process in order, all of a kind at once, and shows the logs of a failed test.
func (s *stack) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range s.processes {
		wg.Go(func() {
			if err := p.terminate(); err != nil {
				s.t.Errorf("%s: %v", p.name, err)
			}
		})
	}
	wg.Wait()
	for _, p := range s.processes {
		_ = p.log.Close() // nothing more is written
		if s.t.Failed() {
			raw, _ := os.ReadFile(p.log.Name()) // best effort: the test has failed already
			s.t.Logf("--- %s\n%s", p.name, tail(string(raw), 40))
		}
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// given are the addresses that freeAddr has returned: one that is not listened on yet is free for the kernel.
var given sync.Map

// freeAddr returns a loopback address that was free a moment ago, and that no other test of this process has.
func freeAddr(t *testing.T) string {
	t.Helper()
	for {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := l.Addr().String()
		require.NoError(t, l.Close())
		if _, taken := given.LoadOrStore(addr, true); !taken {
			return addr
		}
	}
}
