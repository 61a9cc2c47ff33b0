package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

// startFails runs a service with a configuration and returns its exit code and what it printed.
func startFails(t *testing.T, service, yaml string, environ ...string) (code int, output string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hermes.yaml")
	require.NoError(t, os.WriteFile(path, []byte(yaml), 0o600))
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, service), "--config", path)
	cmd.Env = append(os.Environ(), environ...)
	raw, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(raw))
	return exit.ExitCode(), string(raw)
}

func TestStartup_UnknownKeysFail(t *testing.T) {
	t.Parallel()
	code, out := startFails(t, "router", "router: {idd: x}")
	require.Equal(t, 1, code)
	require.Contains(t, out, "idd")
	code, out = startFails(t, "router", "", "HERMES_ROUTER_IDD=x")
	require.Equal(t, 1, code)
	require.Contains(t, out, "HERMES_ROUTER_IDD: no such configuration key")
}

func TestStartup_TwoAccountsOnOneProfileFail(t *testing.T) {
	t.Parallel()
	code, out := startFails(t, "ingress", `channels:
  a: {platform: webhook, webhook: {unsigned: true}}
  b: {platform: webhook, webhook: {unsigned: true}}`)
	require.Equal(t, 1, code)
	require.Contains(t, out, `channels.b.profile: "default" already answers channel "a" of the same platform`)
}

func TestStartup_UnreachableServersAreOneLineEach(t *testing.T) {
	t.Parallel()
	dead := freeAddr(t)
	code, out := startFails(t, "router", "", "HERMES_NATS_URL=nats://"+dead, "HERMES_REDIS_URL=redis://"+dead+"/0",
		"HERMES_POSTGRES_URL=postgres://hermes:hunter2@"+dead+"/hermes")
	require.Equal(t, 3, code, out)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3, out)
	require.Contains(t, lines[0], "nats.url")
	require.Contains(t, lines[1], "redis.url")
	require.Contains(t, lines[2], "postgres.url")
	require.NotContains(t, out, "hunter2")
}

func TestStartup_ARedisThatMayEvictLeasesIsRefused(t *testing.T) {
	t.Parallel()
	s := prepare(t, options{})
	evicting := redisserver.New(t, "--maxmemory-policy", "allkeys-lru")
	code, out := startFails(t, "router", "", "HERMES_NATS_URL="+s.nats.URL(), "HERMES_REDIS_URL="+evicting.URL(),
		"HERMES_POSTGRES_URL="+s.postgres.URL())
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "redis.url")
	require.Contains(t, out, "allkeys-lru")
}
