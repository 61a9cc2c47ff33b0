package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// dev is a running `hermes dev`.
type dev struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr bytes.Buffer
	banner struct {
		API, Hooks, Admin, Model, Store, Broker, Leases string
		Demo, Kept                                      bool
		StartMS                                         int `json:"start_ms"`
	}
}

func hermes(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(bin, "hermes"), args...)
}

func startDev(t *testing.T, args ...string) *dev {
	t.Helper()
	d := &dev{t: t}
	d.cmd = hermes(append([]string{"dev", "-o", "json", "--api-addr", "127.0.0.1:0", "--ingress-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, args...)...)
	d.cmd.Stderr, d.cmd.SysProcAttr = &d.stderr, endWithTests()
	stdout, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(d.interrupt)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err, "no banner: %s", &d.stderr)
	require.NoError(t, json.Unmarshal(line, &d.banner), string(line))
	return d
}

// interrupt is Ctrl-C: everything drains and the exit code is 0.
func (d *dev) interrupt() {
	if d.cmd.ProcessState != nil {
		return
	}
	require.NoError(d.t, d.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(d.t, d.cmd.Wait(), "stderr: %s", &d.stderr)
}

// reply is what `hermes chat -o json` prints.
type reply struct {
	RunID string `json:"run_id"`
	State string
	Text  string
	Tools []string
}

func (d *dev) ask(session, question string) reply {
	d.t.Helper()
	cmd := hermes("chat", "--url", d.banner.API, "--session", session, "-o", "json", question)
	out, err := cmd.Output()
	require.NoError(d.t, err, string(out))
	var r reply
	require.NoError(d.t, json.Unmarshal(out, &r), string(out))
	return r
}

func TestDev_AnswersAfterAToolCallAndDrains(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	require.True(t, d.banner.Demo)
	require.False(t, d.banner.Kept)
	require.Equal(t, "memory", d.banner.Store)

	first := d.ask("s1", `write "hello from the test" to notes.txt`)
	require.Equal(t, "done", first.State, first.Text)
	require.Equal(t, []string{"write_file"}, first.Tools)
	second := d.ask("s1", "what files are in the workspace?")
	require.Equal(t, []string{"list_files"}, second.Tools)
	require.Contains(t, second.Text, "notes.txt")
	require.NotEqual(t, first.RunID, second.RunID)
	other := d.ask("s2", "what files are in the workspace?")
	require.NotContains(t, other.Text, "notes.txt", "every session has a workspace of its own")

	code, body, err := get(d.banner.Admin+"/readyz", "")
	require.NoError(t, err)
	require.Equal(t, 200, code, body)
	_, metrics, err := get(d.banner.Admin+"/metrics", "")
	require.NoError(t, err)
	require.Contains(t, metrics, "hermes_state_duration_seconds")
	d.interrupt()
}

func TestDev_OnRealServersKeepsTheConversation(t *testing.T) {
	t.Parallel()
	s := prepare(t, options{})
	args := []string{"--nats", s.nats.URL(), "--redis", s.redis.URL(), "--postgres", s.postgres.URL()}
	d := startDev(t, args...)
	require.True(t, d.banner.Kept)
	require.Equal(t, "done", d.ask("s1", "hello").State)
	d.interrupt()

	d = startDev(t, args...)
	require.Equal(t, "done", d.ask("s1", "hello again").State)
	require.Equal(t, 1, s.count(`select count(*) from sessions`))
	require.Equal(t, 2, s.count(`select count(*) from runs where state = 'done'`), "the first message is not answered again")
	require.Equal(t, 4, s.count(`select count(*) from messages`))
}

func TestDev_TakesRealServersFromTheEnvironment(t *testing.T) {
	s := prepare(t, options{})
	t.Setenv("HERMES_POSTGRES_URL", s.postgres.URL()) // not parallel: it sets variables of the environment
	t.Setenv("HERMES_REDIS_URL", s.redis.URL())
	d := startDev(t)
	require.Equal(t, "PostgreSQL", d.banner.Store)
	require.Equal(t, "Redis", d.banner.Leases)
	require.Equal(t, "embedded NATS", d.banner.Broker)
	require.Equal(t, "done", d.ask("s1", "hello").State)
	require.Equal(t, 1, s.count(`select count(*) from runs where state = 'done'`))
}

func TestDev_RefusesARealBrokerOnAMemoryStore(t *testing.T) {
	t.Parallel()
	out, err := hermes("dev", "--nats", "nats://127.0.0.1:4222").CombinedOutput()
	require.Equal(t, 2, exitCode(t, err))
	require.Contains(t, string(out), "--nats needs --postgres")
}

func TestDemo_ShowsThePathAndExitsZero(t *testing.T) {
	t.Parallel()
	out, err := hermes("dev", "--demo", "--api-addr", "127.0.0.1:0", "--ingress-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, step := range []string{"message_received", "processing_started", "run_started", "tool_started", "list_files", "tool_finished", "run_finished", "first token"} {
		require.Contains(t, string(out), step)
	}
}

func TestChat_WithoutAServerExitsThree(t *testing.T) {
	t.Parallel()
	out, err := hermes("chat", "--url", "http://"+freeAddr(t), "hello").CombinedOutput()
	require.Equal(t, 3, exitCode(t, err), string(out))
	require.Contains(t, string(out), "not reachable")
}

func TestCLI_UsageErrorsExitTwo(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"dance"}, {"chat", "two", "words"}, {"dev", "--nope"}, {"version", "-o", "xml"}} {
		out, err := hermes(args...).CombinedOutput()
		require.Equal(t, 2, exitCode(t, err), "%v: %s", args, out)
	}
}

func TestConfigCheck_ListsEveryProblem(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hermes.yaml")
	require.NoError(t, os.WriteFile(path, []byte("channels: {ci: {platform: webhook, webhook: {secrets: ['env:E2E_NOT_SET'], reply_url: 'https://h/x'}}}"), 0o600))
	out, err := hermes("config", "check", "--config", path, "-o", "json").Output()
	require.Equal(t, 1, exitCode(t, err))
	require.JSONEq(t, `{"ok": false, "problems": [
		"channels.ci.webhook.reply_secret: is needed with reply_url",
		"channels.ci.webhook.secrets[0]: secret env:E2E_NOT_SET: is empty or not set"]}`, string(out))

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	out, err = hermes("config", "check", "--config", path).Output()
	require.NoError(t, err)
	require.Equal(t, "ok\n", string(out))
}

func TestMigrate_TellsWhatItDid(t *testing.T) {
	t.Parallel()
	s := prepare(t, options{}) // migrates once
	out, err := s.command("hermes", "migrate", "-o", "json").Output()
	require.NoError(t, err)
	require.JSONEq(t, `{"applied": []}`, string(out))
	out, err = hermes("migrate", "--postgres", "postgres://hermes@"+freeAddr(t)+"/hermes").CombinedOutput()
	require.Equal(t, 3, exitCode(t, err), string(out))
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

func TestDev_WithAThirdPartyModelServer(t *testing.T) {
	url := startAimock(t) // not parallel: it sets a variable of the environment
	t.Setenv("E2E_THIRD_PARTY_KEY", "sk-any")
	d := startDev(t, "--model-url", url, "--model", "gpt-4o", "--model-key", "env:E2E_THIRD_PARTY_KEY")
	require.False(t, d.banner.Demo)
	require.Equal(t, "gpt-4o", d.banner.Model)
	r := d.ask("s1", "what files are in the workspace?")
	require.Equal(t, "done", r.State, r.Text)
	require.Equal(t, []string{"list_files"}, r.Tools)
	require.Equal(t, "The workspace holds notes.txt.", r.Text)
}
