package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// node runs programs of the npm registry that no one here wrote: servers that Hermes talks to and clients that talk to
// Hermes. The node package brings a Node.js that is new enough wherever npm is.
type node struct {
	t       *testing.T
	modules string
}

func installNode(t *testing.T, packages ...string) node {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"install", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline", "--prefix", dir, "node@22"}, packages...)
	out, err := exec.CommandContext(t.Context(), "npm", args...).CombinedOutput()
	require.NoError(t, err, string(out))
	return node{t: t, modules: filepath.Join(dir, "node_modules")}
}

func (n node) command(script string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(n.modules, "node", "bin", "node"), append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+n.modules)
	return cmd
}

// script copies a program of testdata beside the installed modules, where Node.js finds them.
func (n node) script(name string) string {
	n.t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(n.t, err)
	path := filepath.Join(filepath.Dir(n.modules), name)
	require.NoError(n.t, os.WriteFile(path, raw, 0o600))
	return path
}

// serve starts a server and returns when something listens on addr. It ends with the test.
func (n node) serve(addr string, cmd *exec.Cmd) {
	n.t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &log, &log, endWithTests()
	require.NoError(n.t, cmd.Start())
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no other end
		_ = cmd.Wait()         // the kill is its error
	})
	await.NoError(n.t, 60*time.Second, func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return fmt.Errorf("%w: %s", err, &log)
		}
		return conn.Close()
	})
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return port
}

const aimockFixtures = `{"fixtures": [
  {"match": {"userMessage": "what files", "hasToolResult": true}, "response": {"content": "The workspace holds notes.txt."}},
  {"match": {"userMessage": "what files"}, "response": {"toolCalls": [{"name": "list_files", "arguments": "{}"}]}}
]}`

// startAimock starts an OpenAI-compatible model server and returns its base URL.
func startAimock(t *testing.T) string {
	t.Helper()
	n := installNode(t, "@copilotkit/aimock@1.43.0")
	fixtures := filepath.Join(t.TempDir(), "fixtures.json")
	require.NoError(t, os.WriteFile(fixtures, []byte(aimockFixtures), 0o600))
	addr := freeAddr(t)
	n.serve(addr, n.command(filepath.Join(n.modules, "@copilotkit", "aimock", "dist", "cli.js"),
		"--port", portOf(t, addr), "--fixtures", fixtures, "--strict"))
	return "http://" + addr + "/v1"
}
