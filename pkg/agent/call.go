package agent

import (
	"context"
	"errors"
	"time"

	"github.com/hermes-runtime/hermes/pkg/tool"
)

const (
	// callTries is how often a call is sent while no tool server answers; unsafe calls are sent once.
	callTries = 3
	// callGrace is the time for which an answer is awaited after the deadline that the tool server was given, so that it
	// can tell what was done until then.
	callGrace = time.Second
)

// report is what became of a call. A report with an error ends the run.
type report struct {
	result tool.Result
	state  CallState
	err    error
}

// runCall executes one call with its span and its events. It may outlive the run and changes nothing of it.
func (r *runner) runCall(ctx context.Context, p *pending) report {
	start := time.Now()
	spanCtx, end := r.tel.tool(ctx, p.call.Name, p.call.ID, r.in.Session)
	event := Event{Tool: p.call.Name, CallID: p.call.ID}
	event.Kind = ToolStarted
	r.emit(spanCtx, event)

	rep := r.tryCall(spanCtx, p, func(text string) {
		progress := event
		progress.Kind, progress.Text = ToolProgress, text
		r.emit(spanCtx, progress)
	})
	end(rep.result, rep.err)

	event.Kind, event.Outcome, event.Err = ToolFinished, string(rep.result.Outcome), rep.err
	if event.Outcome == "" {
		event.Outcome = string(tool.Error)
	}
	event.Duration, event.Size = time.Since(start), len(rep.result.Content)
	r.emit(spanCtx, event)
	return rep
}

// tryCall repeats a call that found no tool server, if its effect allows that.
func (r *runner) tryCall(ctx context.Context, p *pending, progress func(string)) report {
	waits := r.newBackOff()
	for try := 1; ; try++ {
		rep := r.oneCall(ctx, p, progress)
		if !errors.Is(rep.err, tool.ErrUnavailable) {
			return rep
		}
		if p.row.Effect == tool.Unsafe {
			return report{result: *errorResult(unknownText), state: CallUnknown}
		}
		if try == callTries {
			return report{result: *errorResult(unavailableText), state: CallFailed}
		}
		err := sleep(ctx, waits.NextBackOff())
		if err == nil {
			err = r.mayStart(ctx)
		}
		if err != nil {
			return report{err: err}
		}
	}
}

func (r *runner) oneCall(ctx context.Context, p *pending, progress func(string)) report {
	deadline := time.Now().Add(r.cfg.ToolTimeout)
	callCtx, cancel := context.WithDeadline(ctx, deadline.Add(callGrace))
	defer cancel()
	result, err := r.deps.Executor.Execute(callCtx, tool.Request{
		RunID: r.in.ID, CallID: p.call.ID, IdemKey: r.idemKey(p.call.ID),
		Session: r.in.Session, Tenant: r.in.Tenant, User: r.in.User,
		Name: p.call.Name, Arguments: p.arguments, Deadline: deadline,
	}, progress)
	unsafe := p.row.Effect == tool.Unsafe
	switch {
	case err == nil:
		return r.observation(result)
	case errors.Is(err, ErrFenced):
		return report{err: err}
	case ctx.Err() != nil:
		return report{err: context.Cause(ctx)}
	case callCtx.Err() != nil && unsafe:
		return report{result: tool.Result{Outcome: tool.Timeout, Content: timeoutText(r.cfg.ToolTimeout, true)}, state: CallUnknown}
	case callCtx.Err() != nil:
		return report{result: tool.Result{Outcome: tool.Timeout, Content: timeoutText(r.cfg.ToolTimeout, false)}, state: CallFailed}
	default: // whatever else an executor says, nobody knows what happened
		return report{err: errors.Join(tool.ErrUnavailable, err)}
	}
}

// observation makes a result fit for model and store.
func (r *runner) observation(result tool.Result) report {
	result.Content = tool.Readable(result.Content)
	result = tool.Bounded(result, r.cfg.ToolResultBytes)
	if result.Outcome == tool.OK {
		return report{result: result, state: CallDone}
	}
	return report{result: result, state: CallFailed}
}
