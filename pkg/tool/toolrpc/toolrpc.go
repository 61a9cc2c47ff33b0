// Package toolrpc calls tools of a toolexec server through hermes.tool.v1.
//
// A [Client] is safe for concurrent use and owns no goroutine; the connection belongs to the caller.
package toolrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hermes-runtime/hermes/pkg/tool"
	toolv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/tool/v1"
)

// listFor is how long the list of tools is kept: long enough that runs do not ask each time, short enough that a new
// tool is seen soon.
const listFor = 5 * time.Second

// Client is the remote tool.Executor.
type Client struct {
	rpc toolv1.ToolServiceClient

	mu     sync.Mutex
	listed []tool.Spec
	until  time.Time
}

var _ tool.Executor = (*Client)(nil)

// New returns a client on a connection.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{rpc: toolv1.NewToolServiceClient(conn)}
}

// Tools lists what the server offers, at most a few seconds old. Callers share the result and must not change it.
func (c *Client) Tools(ctx context.Context) ([]tool.Spec, error) {
	if specs, ok := c.cached(); ok {
		return specs, nil
	}
	reply, err := c.rpc.ListTools(ctx, &toolv1.ListToolsRequest{})
	if err != nil {
		return nil, fmt.Errorf("list tools: %w", unavailable(ctx, err))
	}
	specs := make([]tool.Spec, len(reply.GetTools()))
	for i, spec := range reply.GetTools() {
		specs[i] = specOf(spec)
	}
	c.keep(specs)
	return specs, nil
}

// The lock is not held during the call: a server that hangs must not hang callers with shorter deadlines.
func (c *Client) cached() ([]tool.Spec, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed, time.Now().Before(c.until)
}

func (c *Client) keep(specs []tool.Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed, c.until = specs, time.Now().Add(listFor)
}

// Execute runs one call.
func (c *Client) Execute(ctx context.Context, req tool.Request, progress func(string)) (tool.Result, error) {
	// A stream that is left before its end is only freed by its context.
	streamCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.Execute(streamCtx, &toolv1.ExecuteRequest{Request: requestOf(req)})
	if err != nil {
		return outcomeOf(ctx, err)
	}
	for {
		reply, err := stream.Recv()
		if err != nil {
			return outcomeOf(ctx, err)
		}
		if result := reply.GetResult(); result != nil {
			return resultOf(result), nil
		}
		if p := reply.GetProgress(); p != nil && progress != nil {
			progress(p.GetText())
		}
	}
}

// outcomeOf tells failures of the tool, which the model reads, from those after which nobody knows what happened.
func outcomeOf(ctx context.Context, err error) (tool.Result, error) {
	if ctx.Err() != nil {
		return tool.Result{}, context.Cause(ctx)
	}
	message := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange:
		return tool.Result{Outcome: tool.Error, Content: message}, nil
	case codes.PermissionDenied, codes.Unauthenticated:
		return tool.Result{Outcome: tool.Denied, Content: message}, nil
	case codes.DeadlineExceeded:
		return tool.Result{Outcome: tool.Timeout, Content: "the tool did not finish in time"}, nil
	default:
		return tool.Result{}, fmt.Errorf("execute tool: %w", unavailable(ctx, err))
	}
}

func unavailable(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the stream ended without a result", tool.ErrUnavailable)
	default:
		return fmt.Errorf("%w: %w", tool.ErrUnavailable, err)
	}
}

func requestOf(r tool.Request) *toolv1.ToolRequest {
	req := &toolv1.ToolRequest{
		RunId: r.RunID, CallId: r.CallID, IdemKey: r.IdemKey,
		Session: r.Session, Tenant: r.Tenant, User: r.User,
		Name: r.Name, Arguments: r.Arguments,
	}
	if !r.Deadline.IsZero() {
		req.Deadline = timestamppb.New(r.Deadline)
	}
	return req
}

func resultOf(r *toolv1.ToolResponse) tool.Result {
	result := tool.Result{Outcome: tool.Error, Content: r.GetContent(), FullSize: r.GetFullSize(), Truncated: r.GetTruncated()}
	switch r.GetOutcome() {
	case toolv1.Outcome_OUTCOME_OK:
		result.Outcome = tool.OK
	case toolv1.Outcome_OUTCOME_TIMEOUT:
		result.Outcome = tool.Timeout
	case toolv1.Outcome_OUTCOME_DENIED:
		result.Outcome = tool.Denied
	case toolv1.Outcome_OUTCOME_ERROR, toolv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return result
}

func specOf(s *toolv1.ToolSpec) tool.Spec {
	return tool.Spec{
		Name: s.GetName(), Description: s.GetDescription(), Parameters: s.GetParameters(),
		Effect: effectOf(s.GetEffect()), PathArguments: s.GetPathArguments(),
	}
}

// effectOf takes what it does not know as unsafe.
func effectOf(e toolv1.Effect) tool.Effect {
	switch e {
	case toolv1.Effect_EFFECT_READ:
		return tool.Read
	case toolv1.Effect_EFFECT_IDEMPOTENT:
		return tool.Idempotent
	default:
		return tool.Unsafe
	}
}
