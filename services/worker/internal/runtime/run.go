package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/turn"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
)

// run is one attempt at a run. It belongs to one goroutine; only tell is called from others, one at a time.
type run struct {
	*Runtime
	slot.Held
	started time.Time
	// profile is nil if the session's is not configured.
	profile *profile
	agentID string

	// hold lives as long as the run may be written, work as long as it may go on. Both end with the overrun of the wall
	// time at the latest.
	hold, work context.Context //nolint:containedctx // the two lives of the run that this value stands for
	cancels    []context.CancelFunc
	span       trace.Span

	inbox.Taking
	known
	messages []*event.Message
	// replaced are the messages of the rows that the prompt replaces.
	replaced []*event.Message
	// stored are the messages of an earlier attempt.
	stored []store.Message
	// before are the messages of earlier runs, nil if they were not read; steps those that this attempt has checkpointed.
	before *[]store.Message
	steps  []store.Message
	events recorder

	// replies, state and result are set by the commit.
	replies   []store.NewReply
	state     store.RunState
	result    store.FinishResult
	committed bool
	// suspended and passedOn: the run goes on later.
	suspended, passedOn bool
	// next is set by the commit or by the handover.
	next slot.Ended
}

var (
	errWall    = fmt.Errorf("wall time of the run is used up: %w", context.DeadlineExceeded)
	errOverrun = errors.New("run did not end in time")
)

func (rt *Runtime) newRun(held slot.Held) *run {
	r := &run{Runtime: rt, Held: held, started: time.Now(), span: trace.SpanFromContext(context.Background())}
	wall := rt.wall(held.AgentID)
	var endHold, endWork context.CancelFunc
	r.hold, endHold = context.WithTimeoutCause(held.Handle.Hold(), wall+overrun, errOverrun)
	r.work, endWork = context.WithTimeoutCause(held.Handle.Work(), wall, errWall)
	r.cancels = []context.CancelFunc{endHold, endWork}
	return r
}

func (r *run) close() {
	r.span.End()
	for _, cancel := range r.cancels {
		cancel()
	}
}

// lost says why nothing may be written any more; nil while the run is held.
func (r *run) lost() error {
	cause := context.Cause(r.hold)
	if cause == nil || errors.Is(cause, agent.ErrFenced) {
		return cause
	}
	return fmt.Errorf("%w: %w", agent.ErrFenced, cause)
}

// mayWrite reports whether a run that broke off with err should still be finished. One that is fenced belongs to
// somebody else.
func (r *run) mayWrite(err error) bool {
	return !r.committed && r.lost() == nil && !errors.Is(err, agent.ErrFenced)
}

// panicError is a panic that was recovered.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// guarded calls f and turns a panic into an error: one run must not take the others with it.
func (r *run) guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v}
			r.Logger.ErrorContext(r.hold, "run panicked", "skey", r.SKey, "run_id", r.RunID, "gen", r.Gen, "err", err,
				"stack", string(debug.Stack()))
		}
	}()
	return f()
}

// answer is the normal way of a run.
func (r *run) answer() error {
	if r.StopRun == r.RunID { // stopped between admission and claim: nothing is begun, the end is written
		r.Handle.Stop()
	}
	if err := r.take(); err != nil {
		return err
	}
	r.begin()
	if len(r.Prompt) == 0 {
		return r.cover()
	}
	t, err := r.pipeline.Run(r.work, r.input(), turn.Handlers{
		Executors: map[string]turn.Executor{turn.React: react{r}},
		Committer: committer{r},
		Fence:     func(context.Context) error { return r.lost() },
		Observe:   r.stateChanged,
	})
	switch {
	case errors.Is(err, agent.ErrHandover):
		return r.handOver(t.Result)
	case errors.Is(err, agent.ErrSuspended):
		return r.suspend(t.Result)
	case err != nil:
		return err
	}
	r.tell()
	return nil
}

// cover finishes a run for whose rows nothing is left to do.
func (r *run) cover() error {
	if err := r.commit(&turn.Turn{Outcome: turn.Done}); err != nil {
		return err
	}
	r.tell()
	return nil
}

// take finds out what the run answers.
func (r *run) take() error {
	if r.Attempts > 1 {
		var err error
		r.stored, err = read(r.hold, func(ctx context.Context) ([]store.Message, error) {
			return r.Store.RunMessages(ctx, r.RunID)
		})
		if err != nil {
			return errors.Join(fmt.Errorf("read messages of the run: %w", err), r.choose()) // for the apology
		}
	}
	return r.choose()
}

// notAsked reports whether a row is named by a message of the run that is no question to it: the answer to one of its own,
// or what a newer message has replaced.
func (r *run) notAsked(row store.InboxRow) bool {
	return row.Kind == store.KindApproval || slices.ContainsFunc(r.stored, func(m store.Message) bool {
		return m.InboxSeq == row.Seq && m.Role == store.RoleSuperseded
	})
}

func (r *run) choose() error {
	take := inbox.Take
	if r.StopRun == r.RunID { // what interrupted it is not its own
		take = inbox.TakeStopped
	}
	r.Taking = take(r.Inbox, r.DoneSeq, r.RunID, r.stored)
	r.Prompt = slices.DeleteFunc(r.Prompt, r.notAsked)
	r.known = known{
		rows: slices.Clone(r.Inbox), ctlSeq: r.CtlSeq, ctlSeen: r.CtlSeq, out: map[int64]*event.Message{}, asked: map[string]bool{},
	}
	err := r.decode()
	r.agentID = r.AgentID
	if m := r.newest(); r.agentID == "" && m != nil {
		r.agentID = m.Profile
	}
	r.profile = r.profiles[r.agentID]
	return err
}

// begin starts the span and tells that the run has started.
func (r *run) begin() {
	name, attributes := agent.SpanOfRun(r.agentID, r.agentID, r.SKey)
	options := []trace.SpanStartOption{trace.WithAttributes(attributes...), trace.WithAttributes(
		attribute.String("hermes.run.id", r.RunID.String()), attribute.Int64("hermes.run.gen", r.Gen),
	)}
	parent := r.work
	for i, row := range r.Prompt {
		if i == 0 {
			parent = event.WithTraceparent(parent, row.Traceparent)
			continue
		}
		linked := event.WithTraceparent(context.Background(), row.Traceparent)
		options = append(options, trace.WithLinks(trace.LinkFromContext(linked)))
	}
	r.work, r.span = r.Tracer.Start(parent, name, options...) //nolint:spancheck // close ends it
	r.hold = trace.ContextWithSpan(r.hold, r.span)
	r.events = r.newRecorder()
	r.events.emit(event.Lifecycle{Type: event.RunStarted})
	r.Stream.Begin(r.hold, r.uids(), r.address().Read())
}

// apologise finishes a run that the pipeline could not finish.
func (r *run) apologise(reason error) error {
	if r.From == 0 { // a range is needed to finish
		return reason
	}
	if r.events.Emitter == nil { // it broke off before it began
		r.begin()
	}
	text := apologyText
	if errors.Is(reason, errIncomplete) {
		text = incompleteText
	}
	t := &turn.Turn{Outcome: turn.Failed, Failure: reason, Reply: turn.Reply{Markdown: text, Notice: true}}
	if err := r.commit(t); err != nil {
		return err
	}
	r.tell()
	return nil
}

// ended counts the run and logs what an operator should know.
func (r *run) ended(err error) {
	outcome := string(r.state)
	switch {
	case r.next.HandedOver:
		outcome = outcomeHandedOver
	case r.suspended:
		outcome = outcomeSuspended
	case r.passedOn:
		outcome = outcomePassedOn
	case err == nil:
	case errors.Is(err, control.ErrDraining):
		outcome = "drained"
	case errors.Is(err, agent.ErrFenced):
		outcome = "fenced"
		r.Logger.WarnContext(r.hold, "run fenced", "skey", r.SKey, "run_id", r.RunID, "gen", r.Gen)
	case !r.committed:
		outcome = "lost"
		r.Logger.ErrorContext(r.hold, "run not finished", "skey", r.SKey, "run_id", r.RunID, "gen", r.Gen, "err", summary(err))
	}
	r.span.SetAttributes(attribute.String("hermes.run.outcome", outcome))
	switch outcome {
	case string(store.RunDone), string(store.RunCancelled), outcomeHandedOver, outcomeSuspended:
	default:
		r.span.SetStatus(codes.Error, outcome)
	}
	r.turns.Record(r.hold, time.Since(r.started).Seconds(), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// summary is err without what a provider wrote, which may repeat the text of a message.
func summary(err error) string {
	var e *llm.Error
	if errors.As(err, &e) {
		return fmt.Sprintf("model: %s (%d)", e.Kind, e.Status)
	}
	return err.Error()
}

// traceparentBehind is that of the oldest known message that waits behind seq.
func (r *run) traceparentBehind(seq int64) string {
	for _, row := range r.Waiting {
		if row.Seq > seq {
			return row.Traceparent
		}
	}
	return ""
}
