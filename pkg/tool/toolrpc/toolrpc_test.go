package toolrpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/pkg/tool/toolrpc"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers as its fields say.
type server struct {
	toolv1.UnimplementedToolServiceServer
	lists   atomic.Int32
	listErr error
	execute func(*toolv1.ToolRequest, grpc.ServerStreamingServer[toolv1.ExecuteResponse]) error
}

func (s *server) ListTools(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	s.lists.Add(1)
	return &toolv1.ListToolsResponse{Tools: []*toolv1.ToolSpec{
		{Name: "read", Description: "reads", Parameters: []byte(`{"type":"object"}`), Effect: toolv1.Effect_EFFECT_READ, PathArguments: []string{"path"}},
		{Name: "put", Effect: toolv1.Effect_EFFECT_IDEMPOTENT},
		{Name: "odd"},
	}}, s.listErr
}

func (s *server) Execute(req *toolv1.ExecuteRequest, stream grpc.ServerStreamingServer[toolv1.ExecuteResponse]) error {
	return s.execute(req.GetRequest(), stream)
}

func dial(t *testing.T, s *server) *toolrpc.Client {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	toolv1.RegisterToolServiceServer(srv, s)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///tools",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		srv.Stop()
		require.NoError(t, <-done)
	})
	return toolrpc.New(conn)
}

func result(r *toolv1.ToolResponse) *toolv1.ExecuteResponse {
	return &toolv1.ExecuteResponse{Event: &toolv1.ExecuteResponse_Result{Result: r}}
}

func TestTools_AreListedAndKeptBriefly(t *testing.T) {
	t.Parallel()
	s := &server{}
	c := dial(t, s)
	for range 3 {
		specs, err := c.Tools(t.Context())
		require.NoError(t, err)
		require.Equal(t, tool.Spec{
			Name: "read", Description: "reads", Parameters: json.RawMessage(`{"type":"object"}`),
			Effect: tool.Read, PathArguments: []string{"path"},
		}, specs[0])
		require.Equal(t, tool.Idempotent, specs[1].Effect)
		require.Equal(t, tool.Unsafe, specs[2].Effect, "what is not known is unsafe")
	}
	require.Equal(t, int32(1), s.lists.Load())
}

func TestTools_ServerThatIsGoneIsUnavailableAndNotKept(t *testing.T) {
	t.Parallel()
	s := &server{listErr: status.Error(codes.Unavailable, "gone")}
	c := dial(t, s)
	for range 2 {
		_, err := c.Tools(t.Context())
		require.ErrorIs(t, err, tool.ErrUnavailable)
	}
	require.Equal(t, int32(2), s.lists.Load())
}

func TestExecute_PassesRequestProgressAndResult(t *testing.T) {
	t.Parallel()
	deadline := time.Now().Add(time.Minute)
	s := &server{execute: func(r *toolv1.ToolRequest, stream grpc.ServerStreamingServer[toolv1.ExecuteResponse]) error {
		if r.GetRunId() != "r" || r.GetCallId() != "c" || r.GetIdemKey() != "r:c" || r.GetSession() != "s" ||
			r.GetTenant() != "t" || r.GetUser() != "u" || r.GetName() != "read" || string(r.GetArguments()) != `{"path":"x"}` ||
			!r.GetDeadline().AsTime().Equal(deadline) {
			return status.Error(codes.InvalidArgument, "request is not what was sent")
		}
		for _, text := range []string{"1", "2"} {
			p := &toolv1.ExecuteResponse{Event: &toolv1.ExecuteResponse_Progress{Progress: &toolv1.ToolProgress{Text: text}}}
			if err := stream.Send(p); err != nil {
				return err
			}
		}
		return stream.Send(result(&toolv1.ToolResponse{Outcome: toolv1.Outcome_OUTCOME_OK, Content: "text", FullSize: 9, Truncated: true}))
	}}
	var progress []string
	got, err := dial(t, s).Execute(t.Context(), tool.Request{
		RunID: "r", CallID: "c", IdemKey: "r:c", Session: "s", Tenant: "t",
		User: "u", Name: "read", Arguments: json.RawMessage(`{"path":"x"}`), Deadline: deadline,
	},
		func(text string) { progress = append(progress, text) })
	require.NoError(t, err)
	require.Equal(t, tool.Result{Outcome: tool.OK, Content: "text", FullSize: 9, Truncated: true}, got)
	require.Equal(t, []string{"1", "2"}, progress)
}

func TestExecute_OutcomesOfTheToolAreResults(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[toolv1.Outcome]tool.Outcome{
		toolv1.Outcome_OUTCOME_ERROR: tool.Error, toolv1.Outcome_OUTCOME_TIMEOUT: tool.Timeout,
		toolv1.Outcome_OUTCOME_DENIED: tool.Denied, toolv1.Outcome_OUTCOME_UNSPECIFIED: tool.Error,
	} {
		s := &server{execute: func(_ *toolv1.ToolRequest, stream grpc.ServerStreamingServer[toolv1.ExecuteResponse]) error {
			return stream.Send(result(&toolv1.ToolResponse{Outcome: outcome, Content: "why"}))
		}}
		got, err := dial(t, s).Execute(t.Context(), tool.Request{}, nil)
		require.NoError(t, err)
		require.Equal(t, tool.Result{Outcome: want, Content: "why"}, got)
	}
}

func TestExecute_ErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	fail := func(code codes.Code) *server {
		return &server{execute: func(*toolv1.ToolRequest, grpc.ServerStreamingServer[toolv1.ExecuteResponse]) error {
			return status.Error(code, "why")
		}}
	}
	for code, want := range map[codes.Code]tool.Result{
		codes.InvalidArgument:  {Outcome: tool.Error, Content: "why"},
		codes.NotFound:         {Outcome: tool.Error, Content: "why"},
		codes.PermissionDenied: {Outcome: tool.Denied, Content: "why"},
		codes.DeadlineExceeded: {Outcome: tool.Timeout, Content: "the tool did not finish in time"},
	} {
		got, err := dial(t, fail(code)).Execute(t.Context(), tool.Request{}, nil)
		require.NoError(t, err, code)
		require.Equal(t, want, got)
	}
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.ResourceExhausted} {
		_, err := dial(t, fail(code)).Execute(t.Context(), tool.Request{}, nil)
		require.ErrorIs(t, err, tool.ErrUnavailable, code)
	}
	_, err := dial(t, fail(codes.OK)).Execute(t.Context(), tool.Request{}, nil)
	require.ErrorIs(t, err, tool.ErrUnavailable, "a stream without a result says nothing")
}

func TestExecute_CancelEndsTheCallWithItsCause(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &server{execute: func(_ *toolv1.ToolRequest, stream grpc.ServerStreamingServer[toolv1.ExecuteResponse]) error {
		cancel(stopped)
		<-stream.Context().Done()
		return stream.Context().Err()
	}}
	_, err := dial(t, s).Execute(ctx, tool.Request{}, nil)
	require.ErrorIs(t, err, stopped)
	require.NotErrorIs(t, err, tool.ErrUnavailable)
}
