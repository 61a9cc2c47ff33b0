// Package toolserver serves hermes.tool.v1: it checks requests, bounds time, output and calls in flight, and streams
// progress and the one result.
//
// What a tool says, also no or too late, is a result. A gRPC error means that the request was wrong (InvalidArgument with
// the field in a BadRequest detail), that the caller went away (Canceled), or that this server is broken (Internal).
package toolserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hermes-runtime/hermes/pkg/tool"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/builtin"
)

// Workspaces gives each session its folder.
type Workspaces interface {
	Folder(tenant, skey string) (string, error)
}

// Options of a server.
type Options struct {
	Tools      []builtin.Tool
	Workspaces Workspaces
	// Timeout caps the deadline of a call.
	Timeout time.Duration
	// OutputBytes caps the content of a result, and the progress shown of it.
	OutputBytes int
	Logger      *slog.Logger
	Meter       metric.Meter
}

// Server is a hermes.tool.v1.ToolService.
type Server struct {
	toolv1.UnimplementedToolServiceServer

	opt     Options
	specs   []*toolv1.ToolSpec
	tools   map[string]*slots
	metrics metrics
}

// slots is a tool with a place for each call that may run at once.
type slots struct {
	builtin.Tool
	free chan struct{}
}

// New returns a server for the tools of opt.
func New(opt Options) (*Server, error) {
	m, err := newMetrics(opt.Meter)
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, tools: map[string]*slots{}, metrics: m}
	for _, t := range opt.Tools {
		if s.tools[t.Spec.Name] != nil {
			return nil, fmt.Errorf("tool %s: name is taken", t.Spec.Name)
		}
		if t.Concurrency < 1 {
			return nil, fmt.Errorf("tool %s: concurrency %d is not positive", t.Spec.Name, t.Concurrency)
		}
		s.tools[t.Spec.Name] = &slots{Tool: t, free: make(chan struct{}, t.Concurrency)}
		s.specs = append(s.specs, specToProto(t.Spec))
	}
	return s, nil
}

// ListTools returns every tool in the order of the options.
func (s *Server) ListTools(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	return &toolv1.ListToolsResponse{Tools: s.specs}, nil
}

// Execute runs one call.
func (s *Server) Execute(
	req *toolv1.ExecuteRequest, stream grpc.ServerStreamingServer[toolv1.ExecuteResponse],
) error {
	r := req.GetRequest()
	if err := s.check(r); err != nil {
		return err
	}
	deadline := r.GetDeadline().AsTime()
	if latest := time.Now().Add(s.opt.Timeout); deadline.After(latest) {
		deadline = latest
	}
	ctx, cancel := context.WithDeadline(stream.Context(), deadline)
	defer cancel()
	begin := time.Now()
	res, err := s.call(ctx, r, stream)
	s.observe(ctx, r, res, err, time.Since(begin))
	if err != nil {
		return s.fault(ctx, r, err)
	}
	return stream.Send(&toolv1.ExecuteResponse{
		Event: &toolv1.ExecuteResponse_Result{Result: resultToProto(builtin.Clip(res, s.opt.OutputBytes))},
	})
}

// call waits for a slot and runs the tool.
func (s *Server) call(
	ctx context.Context, r *toolv1.ToolRequest, stream grpc.ServerStreamingServer[toolv1.ExecuteResponse],
) (builtin.Result, error) {
	t := s.tools[r.GetName()]
	if err := t.acquire(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return timeout("no time was left: the deadline passed before a call could start"), nil
		}
		return builtin.Result{}, err
	}
	defer t.release()
	dir, err := s.opt.Workspaces.Folder(r.GetTenant(), r.GetSession())
	if err != nil {
		return builtin.Result{}, err
	}
	defer s.metrics.started(ctx, t.Spec.Name)()
	return t.Run(ctx, builtin.Call{
		Dir:         dir,
		Arguments:   r.GetArguments(),
		OutputBytes: s.opt.OutputBytes,
		Progress: func(text string) {
			// A stream that broke cancels ctx, which ends the call.
			_ = stream.Send(&toolv1.ExecuteResponse{
				Event: &toolv1.ExecuteResponse_Progress{Progress: &toolv1.ToolProgress{Text: text}},
			})
		},
	})
}

// acquire prefers the end of ctx, so that a call without time never starts.
func (t *slots) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *slots) release() { <-t.free }

func timeout(text string) builtin.Result {
	return builtin.Result{Result: tool.Result{Outcome: tool.Timeout, Content: text, FullSize: int64(len(text))}}
}

// fault turns an error that is not a result into a status. The caller learns no path or kernel detail; the log does.
func (s *Server) fault(ctx context.Context, r *toolv1.ToolRequest, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return status.Error(codes.Canceled, "call canceled")
	}
	s.opt.Logger.ErrorContext(ctx, "tool call broke", "skey", r.GetSession(), "run_id", r.GetRunId(), "err", err)
	return status.Errorf(codes.Internal, "tool %s: the tool server could not run the call", r.GetName())
}

func (s *Server) observe(
	ctx context.Context, r *toolv1.ToolRequest, res builtin.Result, err error, took time.Duration,
) {
	outcome := string(res.Outcome)
	if err != nil {
		outcome = "fault"
	}
	s.metrics.finished(ctx, r.GetName(), outcome, took)
	trace.SpanFromContext(ctx).SetAttributes(
		attribute.String("gen_ai.tool.name", r.GetName()),
		attribute.String("gen_ai.tool.call.id", r.GetCallId()),
		attribute.String("gen_ai.conversation.id", r.GetSession()),
		attribute.String("hermes.run_id", r.GetRunId()),
		attribute.String("hermes.tool.outcome", outcome),
		attribute.Bool("hermes.tool.truncated", res.Truncated),
	)
}
