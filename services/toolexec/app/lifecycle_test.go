package app_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hermes-runtime/hermes/pkg/config"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
	"github.com/hermes-runtime/hermes/services/toolexec/app"
)

func TestApp_HealthServiceFollowsTheLifecycle(t *testing.T) {
	t.Parallel()
	b := start(t)
	health := healthv1.NewHealthClient(b.conn)
	for _, service := range []string{"", "hermes.tool.v1.ToolService"} {
		res, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, healthv1.HealthCheckResponse_SERVING, res.GetStatus(), service)
	}
	watch, err := health.Watch(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthv1.HealthCheckResponse_SERVING, first.GetStatus())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.app.Stop(ctx), context.DeadlineExceeded, "the watch is still there")
	second, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthv1.HealthCheckResponse_NOT_SERVING, second.GetStatus())
}

func TestApp_ReadyFollowsTheLifecycle(t *testing.T) {
	t.Parallel()
	b := start(t)
	require.NoError(t, b.app.Ready(t.Context()))
	require.Len(t, b.app.Checks(), 1)
	require.NoError(t, b.app.Checks()[0].Ready(t.Context()))
	require.NoError(t, b.app.Stop(t.Context()))
	require.ErrorContains(t, b.app.Ready(t.Context()), "not running")
	require.NoError(t, b.app.Stop(t.Context()))
}

func TestApp_StopBeforeStart(t *testing.T) {
	t.Parallel()
	cfg := config.Default().Toolexec
	cfg.Workspaces = t.TempDir()
	a, err := app.New(cfg, app.Deps{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.Equal(t, cfg.Addr, a.Addr())
	require.NoError(t, a.Stop(t.Context()))
	require.ErrorContains(t, a.Start(t.Context()), "started or stopped before")
}

func TestApp_StopWaitsForRunningCalls(t *testing.T) {
	t.Parallel()
	b := start(t)
	stream, err := b.client.Execute(t.Context(), &toolv1.ExecuteRequest{Request: newRequest(t, alice, "terminal",
		args{"command": "echo ready; while [ ! -e go ]; do sleep 0.02; done"})})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	stopped := make(chan error, 1)
	go func() { stopped <- b.app.Stop(context.WithoutCancel(t.Context())) }()
	require.Eventually(t, func() bool { return b.app.Ready(t.Context()) != nil }, 10*time.Second, 5*time.Millisecond)
	b.put(t, alice, "go", "")
	last, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "ready\n[exit code 0]", last.GetResult().GetContent())
	require.NoError(t, <-stopped)
}

func TestApp_StopCutsCallsOffAtItsDeadline(t *testing.T) {
	t.Parallel()
	b := start(t)
	stream, err := b.client.Execute(t.Context(), &toolv1.ExecuteRequest{Request: newRequest(t, alice, "terminal",
		args{"command": "echo ready; sleep 1000"})})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.app.Stop(ctx), context.DeadlineExceeded)
	require.Empty(t, processesIn(t, b.workspace(alice)), "gone before Stop returns")
	_, err = stream.Recv()
	require.Contains(t, []codes.Code{codes.Canceled, codes.Unavailable}, status.Code(err))
}

func TestApp_ServesOnAGivenListener(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg := config.Default().Toolexec
	cfg.Workspaces = t.TempDir()
	a, err := app.New(cfg, app.Deps{Logger: slog.New(slog.DiscardHandler), Listener: l})
	require.NoError(t, err)
	require.Equal(t, l.Addr().String(), a.Addr())
	require.NoError(t, a.Start(t.Context()))
	require.Equal(t, l.Addr().String(), a.Addr())
	require.NoError(t, a.Stop(t.Context()))
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}

func TestApp_StartFailsOnATakenAddress(t *testing.T) {
	t.Parallel()
	b := start(t)
	cfg := config.Default().Toolexec
	cfg.Addr = b.app.Addr()
	cfg.Workspaces = t.TempDir()
	a, err := app.New(cfg, app.Deps{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.ErrorContains(t, a.Start(t.Context()), "toolexec: listen: ")
	require.NoError(t, a.Stop(t.Context()))
}

func TestApp_StartFailsWithoutWorkspacesAndFreesItsAddress(t *testing.T) {
	t.Parallel()
	cfg := config.Default().Toolexec
	cfg.Addr = "127.0.0.1:0"
	cfg.Workspaces = filepath.Join("/dev/null", "x")
	a, err := app.New(cfg, app.Deps{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.ErrorContains(t, a.Start(t.Context()), "make workspaces")
	_, err = net.Dial("tcp", a.Addr())
	require.Error(t, err)
}

func TestNew_NamesEveryBadKey(t *testing.T) {
	t.Parallel()
	_, err := app.New(config.Toolexec{}, app.Deps{})
	for _, want := range []string{"logger", "toolexec.workspaces", "toolexec.timeout", "toolexec.output_bytes"} {
		require.ErrorContains(t, err, want)
	}
}

func TestApp_ReportsTheSandboxOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	require.Regexp(t, `^[^\n]*"msg":"sandbox","limits":\{[^\n]*"network":"none: [^\n]*\}\n$`, b.logs.String())
	require.NotEmpty(t, b.app.Report())
}

func TestExecute_ContinuesTheTraceOfTheCaller(t *testing.T) {
	t.Parallel()
	b := start(t)
	ctx, parent := b.tracer.Tracer("test").Start(t.Context(), "execute_tool current_time")
	_, _, err := b.execute(ctx, newRequest(t, alice, "current_time", args{}))
	require.NoError(t, err)
	parent.End()
	require.NoError(t, b.app.Stop(t.Context()))
	for _, s := range b.spans.Ended() {
		if s.SpanKind().String() != "server" {
			continue
		}
		require.Equal(t, parent.SpanContext().TraceID(), s.SpanContext().TraceID())
		found := map[string]string{}
		for _, a := range s.Attributes() {
			found[string(a.Key)] = a.Value.String()
		}
		require.Equal(t, "current_time", found["gen_ai.tool.name"])
		require.Equal(t, "call-1", found["gen_ai.tool.call.id"])
		require.Equal(t, alice, found["gen_ai.conversation.id"])
		require.Equal(t, "ok", found["hermes.tool.outcome"])
		return
	}
	t.Fatal("no server span")
}
