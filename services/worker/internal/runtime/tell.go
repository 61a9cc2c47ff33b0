package runtime

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
	"github.com/hermes-runtime/hermes/pkg/turn"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
)

// recorder numbers the lifecycle events of one attempt.
type recorder struct {
	Emitter
	base event.Lifecycle
	n    *atomic.Int64
}

func (r *run) newRecorder() recorder {
	base := event.Lifecycle{
		Tenant: r.Tenant, SKey: r.SKey, RunID: r.RunID.String(), Gen: r.Gen, Profile: r.agentID, Address: r.address(),
	}
	if len(r.messages) > 0 {
		base.MsgUID = r.messages[0].UID
	}
	return recorder{Emitter: r.Events, base: base, n: new(atomic.Int64)}
}

// emit completes ev with what all events of the run share.
func (e recorder) emit(ev event.Lifecycle) {
	ev.Tenant, ev.SKey, ev.RunID, ev.Gen = e.base.Tenant, e.base.SKey, e.base.RunID, e.base.Gen
	ev.MsgUID = cmp.Or(ev.MsgUID, e.base.MsgUID)
	ev.Profile, ev.Address, ev.N = e.base.Profile, e.base.Address, e.n.Add(1)
	e.Emit(ev)
}

// Outcomes of steps.
const (
	outcomeOK    = "ok"
	outcomeError = "error"
)

func outcomeOf(err error) string {
	if err != nil {
		return outcomeError
	}
	return outcomeOK
}

// stateChanged tells that a state of the turn was left.
func (r *run) stateChanged(_ context.Context, c turn.StateChange) {
	r.events.emit(event.Lifecycle{
		Type: event.StateChanged, Name: string(c.State), Duration: c.Duration, Outcome: outcomeOf(c.Err),
	})
}

// observe passes what the loop does on to the stream and to the lifecycle events.
func (r *run) observe(ctx context.Context, e agent.Event) {
	if r.Handle.Valid() { // else another attempt may be showing its own
		r.show(ctx, e)
	}
	if ev, ok := lifecycleOf(e); ok {
		r.events.emit(ev)
	}
}

func (r *run) show(ctx context.Context, e agent.Event) {
	switch e.Kind {
	case agent.TextDelta:
		r.Stream.Text(ctx, e.Text)
	case agent.StepEnded:
		r.Stream.Step(ctx)
	case agent.ToolStarted:
		r.Stream.ToolStarted(ctx, e.Tool, e.CallID)
	case agent.ToolProgress:
		r.Stream.ToolProgress(ctx, e.Tool, e.CallID, e.Text)
	case agent.ToolFinished, agent.Answered:
		r.Stream.ToolFinished(ctx, e.Tool, e.CallID, e.Outcome)
	case agent.LLMStarted, agent.LLMFinished:
	}
}

// lifecycleOf is the event that tells of a moment of a run; not ok if there is none.
func lifecycleOf(e agent.Event) (ev event.Lifecycle, ok bool) {
	switch e.Kind {
	case agent.LLMStarted:
		return event.Lifecycle{Type: event.LLMStarted, Name: e.Model}, true
	case agent.LLMFinished:
		return event.Lifecycle{
			Type: event.LLMFinished, Name: e.Model, Duration: e.Duration, Outcome: outcomeOf(e.Err),
			InputTokens: e.Usage.InputTokens, OutputTokens: e.Usage.OutputTokens,
		}, true
	case agent.ToolStarted:
		return event.Lifecycle{Type: event.ToolStarted, Name: e.Tool, CallID: e.CallID}, true
	case agent.ToolProgress:
		return event.Lifecycle{Type: event.ToolProgress, Name: e.Tool, CallID: e.CallID, Size: int64(len(e.Text))}, true
	case agent.ToolFinished:
		return event.Lifecycle{
			Type: event.ToolFinished, Name: e.Tool, CallID: e.CallID, Outcome: e.Outcome, Duration: e.Duration, Size: int64(e.Size),
		}, true
	case agent.Answered:
		return event.Lifecycle{Type: event.ApprovalResolved, Name: e.Tool, CallID: e.CallID, Outcome: e.Outcome}, true
	case agent.TextDelta, agent.StepEnded:
	}
	return event.Lifecycle{}, false
}

// tellTimeout bounds the doorbells of a run that is committed.
const tellTimeout = 5 * time.Second

// tell lets others know of the end of the run: all of it may be lost, the store knows.
func (r *run) tell() {
	// The run is committed: what is left to do outlives its contexts.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.hold), tellTimeout)
	defer cancel()
	outcome := string(r.state)
	r.Stream.End(ctx, outcome)
	firstOut := int64(0)
	if r.result.Known {
		firstOut = r.result.FirstOut
	}
	delivered := r.ring(ctx, r.replies, firstOut)
	r.events.emit(event.Lifecycle{Type: event.RunFinished, Outcome: outcome, Duration: time.Since(r.started)})
	if !delivered {
		r.events.emit(event.Lifecycle{Type: event.ProcessingCompleted, Outcome: outcome, Duration: time.Since(r.started)})
	}
}

// ring publishes the doorbells of the replies that have to be sent, of which the first has the number firstOut. It
// reports whether there are any. Those whose numbers are not known (0) are rung by the sweeper.
func (r *run) ring(ctx context.Context, replies []store.NewReply, firstOut int64) (delivered bool) {
	for i, reply := range replies {
		if reply.Read {
			continue
		}
		delivered = true
		if firstOut > 0 {
			r.ringOne(ctx, reply, firstOut+int64(i))
		}
	}
	return delivered
}

func (r *run) ringOne(ctx context.Context, reply store.NewReply, outSeq int64) {
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: r.SKey, OutSeq: outSeq})
	if err == nil {
		m := bus.Msg{
			Subject: bus.OutSubject(reply.Platform, r.SKey), ID: fmt.Sprintf("%s:%d:0", r.SKey, outSeq), Data: data,
		}
		spanCtx, span := telemetry.StartPublish(ctx, r.Tracer, telemetry.TemplateOut, &m)
		_, err = r.Bus.Publish(spanCtx, m)
		telemetry.EndSpan(span, err)
	}
	if err != nil { // the sweeper rings again
		r.Logger.WarnContext(ctx, "doorbell not rung", "skey", r.SKey, "run_id", r.RunID, "err", err)
	}
}
