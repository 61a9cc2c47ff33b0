package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hermes-runtime/hermes/pkg/config"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
	"github.com/hermes-runtime/hermes/services/toolexec/app"
)

func TestMain(m *testing.M) {
	if app.IsChild(os.Args) {
		os.Exit(app.RunChild())
	}
	goleak.VerifyTestMain(m)
}

const (
	alice = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
	bob   = "bbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// lockedBuffer collects logs of many goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// bundle is a running executor and a client of it.
type bundle struct {
	app    *app.App
	conn   *grpc.ClientConn
	client toolv1.ToolServiceClient
	root   string
	logs   *lockedBuffer
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
}

func start(t *testing.T, change ...func(*config.Toolexec)) *bundle {
	t.Helper()
	cfg := config.Default().Toolexec
	cfg.Addr = "127.0.0.1:0"
	cfg.Workspaces = t.TempDir()
	cfg.Timeout = time.Minute
	for _, c := range change {
		c(&cfg)
	}
	b := &bundle{root: cfg.Workspaces, logs: &lockedBuffer{}, spans: tracetest.NewSpanRecorder()}
	b.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	var err error
	b.app, err = app.New(cfg, app.Deps{Logger: slog.New(slog.NewJSONHandler(b.logs, nil)), TracerProvider: b.tracer})
	require.NoError(t, err)
	require.NoError(t, b.app.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.app.Stop(context.WithoutCancel(t.Context()))) })
	b.conn, err = grpc.NewClient(b.app.Addr(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(
			otelgrpc.WithTracerProvider(b.tracer), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.conn.Close()) })
	b.client = toolv1.NewToolServiceClient(b.conn)
	return b
}

type args map[string]any

func newRequest(t *testing.T, session, name string, arguments args) *toolv1.ToolRequest {
	t.Helper()
	if arguments == nil {
		arguments = args{}
	}
	raw, err := json.Marshal(arguments)
	require.NoError(t, err)
	return &toolv1.ToolRequest{
		RunId: "run-1", CallId: "call-1", IdemKey: "run-1/call-1", Session: session, Tenant: "acme", User: "u",
		Name: name, Arguments: raw, Deadline: timestamppb.New(time.Now().Add(time.Minute)),
	}
}

// execute returns the progress and the one result; nothing may follow it.
func (b *bundle) execute(ctx context.Context, r *toolv1.ToolRequest) (string, *toolv1.ToolResponse, error) {
	stream, err := b.client.Execute(ctx, &toolv1.ExecuteRequest{Request: r})
	if err != nil {
		return "", nil, err
	}
	var progress strings.Builder
	var result *toolv1.ToolResponse
	for {
		ev, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return progress.String(), result, nil
		case err != nil:
			return progress.String(), nil, err
		case result != nil:
			return "", nil, errors.New("an event after the result")
		}
		progress.WriteString(ev.GetProgress().GetText())
		result = ev.GetResult()
	}
}

func (b *bundle) call(t *testing.T, session, name string, arguments args) *toolv1.ToolResponse {
	t.Helper()
	_, res, err := b.execute(t.Context(), newRequest(t, session, name, arguments))
	require.NoError(t, err)
	require.NotNil(t, res)
	return res
}

// ok calls a tool that must succeed.
func (b *bundle) ok(t *testing.T, session, name string, arguments args) string {
	t.Helper()
	res := b.call(t, session, name, arguments)
	require.Equal(t, toolv1.Outcome_OUTCOME_OK, res.GetOutcome(), res.GetContent())
	return res.GetContent()
}

// no calls a tool that must say no.
func (b *bundle) no(t *testing.T, session, name string, arguments args) string {
	t.Helper()
	res := b.call(t, session, name, arguments)
	require.Equal(t, toolv1.Outcome_OUTCOME_ERROR, res.GetOutcome(), res.GetContent())
	return res.GetContent()
}

// enforced says whether the machine that runs the test enforces a limit; the tests assert both answers.
func (b *bundle) enforced(name string) bool {
	for _, l := range b.app.Report() {
		if l.Name == name {
			return l.Enforced()
		}
	}
	return false
}
