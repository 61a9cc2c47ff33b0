package app_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hermes-runtime/hermes/pkg/config"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
)

func TestTerminal_RunsInTheWorkspaceOfItsSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	require.Equal(t, b.workspace(alice)+"\n[exit code 0]", b.ok(t, alice, "terminal", args{"command": "pwd; echo hi > f"}))
	require.Equal(t, "hi\n", b.ok(t, alice, "read_file", args{"path": "f"}))
	require.Contains(t, b.no(t, bob, "terminal", args{"command": "cat f"}), "No such file")
}

func TestTerminal_SessionsCannotReadEachOther(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(t, alice, "f", "of alice")
	res := b.call(t, bob, "terminal", args{"command": "cat ../" + alice + "/f; ls .."})
	if b.enforced("files") {
		require.Equal(t, 2, strings.Count(res.GetContent(), "Permission denied"), res.GetContent())
	} else {
		require.Contains(t, res.GetContent(), "of alice")
	}
}

func TestTerminal_SeesNothingOfTheEnvironment(t *testing.T) {
	t.Setenv("HERMES_API_KEY", "hunter2")
	b := start(t)
	out := b.ok(t, alice, "terminal", args{"command": "/usr/bin/env | cut -d= -f1 | sort | tr '\\n' ' '"})
	require.Equal(t, "HOME LANG PATH PWD TMPDIR \n[exit code 0]", out)
}

func TestTerminal_FailureKeepsOutputAndCode(t *testing.T) {
	t.Parallel()
	b := start(t)
	require.Equal(t, "out\nerr\n[exit code 3]",
		b.no(t, alice, "terminal", args{"command": "echo out; echo err >&2; exit 3"}))
}

func TestTerminal_StreamsProgressBeforeTheResult(t *testing.T) {
	t.Parallel()
	b := start(t)
	stream, err := b.client.Execute(t.Context(), &toolv1.ExecuteRequest{Request: newRequest(t, alice, "terminal",
		args{"command": "echo started; while [ ! -e go ]; do sleep 0.02; done; echo done"})})
	require.NoError(t, err)
	first, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "started\n", first.GetProgress().GetText())
	b.put(t, alice, "go", "")
	second, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "done\n", second.GetProgress().GetText())
	last, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "started\ndone\n[exit code 0]", last.GetResult().GetContent())
}

func TestTerminal_OutputIsCutInTheMiddle(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *config.Toolexec) { c.OutputBytes = 2000 })
	progress, res, err := b.execute(t.Context(),
		newRequest(t, alice, "terminal", args{"command": "echo first; yes | head -c 3000000; echo last"}))
	require.NoError(t, err)
	require.True(t, res.GetTruncated())
	require.EqualValues(t, 3_000_000+11, res.GetFullSize())
	require.LessOrEqual(t, len(res.GetContent()), 2000)
	require.Len(t, progress, 2000)
	require.True(t, strings.HasPrefix(res.GetContent(), "first\ny\n"))
	require.True(t, strings.HasSuffix(res.GetContent(), "y\nlast\n[exit code 0]"))
	require.Regexp(t, `\n\[\d+ bytes cut\]\n`, res.GetContent())
}

func TestTerminal_BinaryOutputBecomesText(t *testing.T) {
	t.Parallel()
	b := start(t)
	progress, res, err := b.execute(t.Context(),
		newRequest(t, alice, "terminal", args{"command": `printf 'a\000b\377\376c\303\274'`}))
	require.NoError(t, err)
	require.Equal(t, "ab?cü\n[exit code 0]", res.GetContent())
	require.Equal(t, "ab?cü", progress)
}

func TestTerminal_DeadlineIsATimeoutWithTheOutputSoFar(t *testing.T) {
	t.Parallel()
	b := start(t)
	r := newRequest(t, alice, "terminal", args{"command": "echo before; sleep 1000 & sleep 1000; echo after"})
	r.Deadline = timestamppb.New(time.Now().Add(4 * time.Second))
	_, res, err := b.execute(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, toolv1.Outcome_OUTCOME_TIMEOUT, res.GetOutcome())
	require.Regexp(t, `^before\n\[stopped after \d+(\.\d+)?s: time is up\]$`, res.GetContent())
	require.Empty(t, processesIn(t, b.workspace(alice)))
}

func TestTerminal_TimeoutOfTheServerCapsTheDeadline(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *config.Toolexec) { c.Timeout = time.Second })
	begin := time.Now()
	res := b.call(t, alice, "terminal", args{"command": "sleep 1000", "timeout_s": 500})
	require.Equal(t, toolv1.Outcome_OUTCOME_TIMEOUT, res.GetOutcome())
	require.Less(t, time.Since(begin), 30*time.Second)
}

func TestTerminal_CancelledCallKillsEverything(t *testing.T) {
	t.Parallel()
	b := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := b.client.Execute(ctx, &toolv1.ExecuteRequest{Request: newRequest(t, alice, "terminal",
		args{"command": "(setsid sleep 1000 &) ; sleep 1000 & echo ready; sleep 1000"})})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	require.NotEmpty(t, processesIn(t, b.workspace(alice)))
	cancel()
	_, err = stream.Recv()
	require.Equal(t, codes.Canceled, status.Code(err))
	require.Eventually(t, func() bool { return len(processesIn(t, b.workspace(alice))) == 0 },
		20*time.Second, 10*time.Millisecond)
}

// processesIn returns the ids of processes that work in a folder.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	var found []string
	for _, l := range links {
		if cwd, err := os.Readlink(l); err == nil && cwd == dir {
			found = append(found, l)
		}
	}
	return found
}

func TestHTTPRequest_ReachesOnlyWhatIsListed(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("pong")) }))
	t.Cleanup(s.Close)
	listed := start(t, func(c *config.Toolexec) { c.AllowHosts = []string{s.Listener.Addr().String()} })
	require.Contains(t, listed.ok(t, alice, "http_request", args{"url": s.URL}), "\npong")
	res := start(t).call(t, alice, "http_request", args{"url": s.URL})
	require.Equal(t, toolv1.Outcome_OUTCOME_DENIED, res.GetOutcome())
	require.Contains(t, res.GetContent(), "blocked by allow_list")
}

func TestCurrentTime_IsNow(t *testing.T) {
	t.Parallel()
	text := start(t).ok(t, alice, "current_time", args{"timezone": "Asia/Shanghai"})
	at, err := time.Parse("Monday, 2006-01-02T15:04:05Z07:00 (MST)", text)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	_, offset := at.Zone()
	require.Equal(t, 8*60*60, offset)
}
