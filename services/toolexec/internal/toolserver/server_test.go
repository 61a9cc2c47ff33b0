package toolserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hermes-runtime/hermes/pkg/tool"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const skey = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

type folders struct{ err error }

func (f folders) Folder(string, string) (string, error) { return "/workspace", f.err }

// recorder is the server's side of a stream.
type recorder struct {
	grpc.ServerStream
	ctx    context.Context
	events []*toolv1.ExecuteResponse
}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Send(e *toolv1.ExecuteResponse) error {
	r.events = append(r.events, e)
	return nil
}

func options(run func(ctx context.Context, call builtin.Call) (builtin.Result, error)) Options {
	return Options{
		Tools: []builtin.Tool{{
			Spec: tool.Spec{Name: "probe", Effect: tool.Read, Parameters: []byte(`{"type":"object"}`)}, Concurrency: 1, Run: run,
		}},
		Workspaces:  folders{},
		Timeout:     time.Minute,
		OutputBytes: 1024,
		Logger:      slog.New(slog.DiscardHandler),
		Meter:       metricnoop.Meter{},
	}
}

func execute(ctx context.Context, s *Server, timeout time.Duration) ([]*toolv1.ExecuteResponse, error) {
	stream := &recorder{ctx: ctx}
	err := s.Execute(&toolv1.ExecuteRequest{Request: &toolv1.ToolRequest{
		Session: skey, Name: "probe", Arguments: []byte(`{}`), Deadline: timestamppb.New(time.Now().Add(timeout)),
	}}, stream)
	return stream.events, err
}

func succeed(_ context.Context, _ builtin.Call) (builtin.Result, error) {
	return builtin.Result{Result: tool.Result{Outcome: tool.OK, Content: "done"}}, nil
}

func newServer(t *testing.T, opt Options) *Server {
	t.Helper()
	s, err := New(opt)
	require.NoError(t, err)
	return s
}

func TestExecute_RunsNoMoreCallsThanTheToolAllows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		s := newServer(t, options(func(ctx context.Context, call builtin.Call) (builtin.Result, error) {
			running++
			most = max(most, running)
			<-time.After(time.Second)
			running--
			return succeed(ctx, call)
		}))
		begin := time.Now()
		done := make(chan error)
		for range 3 {
			go func() {
				_, err := execute(t.Context(), s, 30*time.Second)
				done <- err
			}()
		}
		for range 3 {
			require.NoError(t, <-done)
		}
		require.Equal(t, 1, most)
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

func TestExecute_NoFreeSlotUntilTheDeadlineIsATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := newServer(t, options(func(ctx context.Context, c builtin.Call) (builtin.Result, error) {
			calls++
			<-time.After(10 * time.Second)
			return succeed(ctx, c)
		}))
		done := make(chan error)
		go func() {
			_, err := execute(t.Context(), s, 30*time.Second)
			done <- err
		}()
		synctest.Wait()
		events, err := execute(t.Context(), s, time.Second)
		require.NoError(t, err)
		require.Equal(t, toolv1.Outcome_OUTCOME_TIMEOUT, events[0].GetResult().GetOutcome())
		require.Equal(t, 1, calls)
		require.NoError(t, <-done)
	})
}

func TestExecute_CancelledWhileWaitingIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := execute(ctx, newServer(t, options(succeed)), time.Minute)
	require.Equal(t, codes.Canceled, status.Code(err))
}

func TestExecute_DeadlineIsCapped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		s := newServer(t, options(func(ctx context.Context, c builtin.Call) (builtin.Result, error) {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return succeed(ctx, c)
		}))
		_, err := execute(t.Context(), s, time.Hour)
		require.NoError(t, err)
		require.Equal(t, time.Minute, left)
		_, err = execute(t.Context(), s, time.Second)
		require.NoError(t, err)
		require.Equal(t, time.Second, left)
	})
}

func TestExecute_ResultIsCleanAndCutWhateverTheToolReturns(t *testing.T) {
	t.Parallel()
	s := newServer(t, options(func(_ context.Context, c builtin.Call) (builtin.Result, error) {
		require.Equal(t, "/workspace", c.Dir)
		c.Progress("half way")
		return builtin.Result{Result: tool.Result{Outcome: tool.OK, Content: "\x00\xff" + strings.Repeat("x", 5000)}}, nil
	}))
	events, err := execute(t.Context(), s, time.Minute)
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, "half way", events[0].GetProgress().GetText())
	res := events[1].GetResult()
	require.LessOrEqual(t, len(res.GetContent()), 1024)
	require.True(t, strings.HasPrefix(res.GetContent(), "?xxx"))
	require.True(t, res.GetTruncated())
	require.EqualValues(t, 5002, res.GetFullSize())
}

func TestExecute_FaultTellsTheCallerNoDetail(t *testing.T) {
	t.Parallel()
	broken := options(func(context.Context, builtin.Call) (builtin.Result, error) {
		return builtin.Result{}, errors.New("/srv/workspaces is gone")
	})
	homeless := options(succeed)
	homeless.Workspaces = folders{err: io.ErrShortWrite}
	for _, opt := range []Options{broken, homeless} {
		var logs strings.Builder
		opt.Logger = slog.New(slog.NewTextHandler(&logs, nil))
		events, err := execute(t.Context(), newServer(t, opt), time.Minute)
		require.Equal(t, codes.Internal, status.Code(err))
		require.Equal(t, "tool probe: the tool server could not run the call", status.Convert(err).Message())
		require.Empty(t, events)
		require.Contains(t, logs.String(), "skey="+skey)
	}
}

func TestExecute_CountsCallsByToolAndOutcome(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	opt := options(succeed)
	opt.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	_, err := execute(t.Context(), newServer(t, opt), time.Minute)
	require.NoError(t, err)
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &rm))
	got := map[string]any{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		got[m.Name] = m.Data
	}
	require.Zero(t, got["hermes.toolexec.calls_in_flight"].(metricdata.Sum[int64]).DataPoints[0].Value)
	point := got["hermes.toolexec.call.duration"].(metricdata.Histogram[float64]).DataPoints[0]
	require.EqualValues(t, 1, point.Count)
	outcome, _ := point.Attributes.Value("outcome")
	require.Equal(t, "ok", outcome.AsString())
	require.Equal(t, 2, point.Attributes.Len())
}

func TestNew_RefusesToolsThatCannotWork(t *testing.T) {
	t.Parallel()
	twice := options(succeed)
	twice.Tools = append(twice.Tools, twice.Tools[0])
	_, err := New(twice)
	require.ErrorContains(t, err, "tool probe: name is taken")
	never := options(succeed)
	never.Tools[0].Concurrency = 0
	_, err = New(never)
	require.ErrorContains(t, err, "tool probe: concurrency 0 is not positive")
}
