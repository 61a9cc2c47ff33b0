package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/turn"
)

// react is the executor that runs the ReAct loop of the run's profile.
type react struct{ *run }

// Execute implements turn.Executor.
func (x react) Execute(ctx context.Context, t *turn.Turn) (agent.Result, error) {
	if cause := context.Cause(ctx); cause != nil { // stopped before it began: no model is asked
		return x.overtaken(t, cause), cause
	}
	if x.Handle.Leaving() {
		return x.overtaken(t, agent.ErrHandover), agent.ErrHandover
	}
	if x.profile == nil {
		return x.failed(ctx, t, fmt.Errorf("%w %q", errUnknownProfile, x.agentID))
	}
	loop, err := x.profile.agentLoop(ctx)
	if err != nil {
		return x.failed(ctx, t, err)
	}
	if err := x.takeLate(t); err != nil {
		return agent.Result{}, err
	}
	before, err := x.conversation(ctx)
	if err != nil {
		return x.failed(ctx, t, err)
	}
	in, err := x.agentRun(t, before)
	if err != nil {
		return x.failed(ctx, t, err)
	}
	return loop.Run(ctx, in, journal(x), x.observe)
}

// failed is a run that never reached the model. What ended its context counts more than err.
func (x react) failed(ctx context.Context, t *turn.Turn, err error) (agent.Result, error) {
	if cause := context.Cause(ctx); cause != nil {
		return x.overtaken(t, cause), cause
	}
	return x.unanswered(t, agent.Failed), &turn.ExecuteError{Executor: turn.React, Err: err}
}

// overtaken is a run whose end came before its first step. One that goes on elsewhere stores nothing: it chooses its
// messages anew, with the late ones that were not taken yet.
func (x react) overtaken(t *turn.Turn, cause error) agent.Result {
	if errors.Is(cause, agent.ErrHandover) {
		return agent.Result{Outcome: agent.HandedOver}
	}
	return x.unanswered(t, agent.Stopped)
}

// unanswered keeps the messages in the history. Late ones that were not taken yet stay in the inbox.
func (x react) unanswered(t *turn.Turn, outcome agent.Outcome) agent.Result {
	entries := slices.DeleteFunc(x.promptEntries(t), func(e agent.Entry) bool { return slices.Contains(x.Late, e.InboxSeq) })
	for i := range entries {
		entries[i].N = entries[0].N + i
	}
	return agent.Result{Outcome: outcome, Entries: entries}
}

// takeLate stores the prompt and takes the late rows out of their place in the same statement, so that no other run can
// answer them. Runs without late rows need no statement of their own.
func (x react) takeLate(t *turn.Turn) error {
	if len(x.Late) == 0 {
		return nil
	}
	rows, err := x.rowsOf(x.promptEntries(t))
	if err != nil {
		return err
	}
	if _, err := x.checkpoint(store.Checkpoint{Messages: rows, Taken: x.Late}); err != nil {
		return err
	}
	x.stored, x.Late = append(x.stored, rows...), nil
	return nil
}

// journal stores the steps of the loop.
type journal struct{ *run }

// Checkpoint implements agent.Journal. It waits for the store as long as the run is held: a stop in between does not
// leave the outcome of a step open.
func (j journal) Checkpoint(_ context.Context, step agent.Step) (agent.Signal, error) {
	messages, errMessages := j.rowsOf(step.Messages)
	calls, errCalls := ledgerOf(step.Calls)
	if err := errors.Join(errMessages, errCalls); err != nil {
		return agent.Signal{}, err
	}
	signals, err := j.checkpoint(store.Checkpoint{Messages: messages, ToolCalls: calls})
	return agent.Signal{Stop: err == nil && signals.StopRun == j.RunID}, err
}

// checkpoint sends cp under the run's fence.
func (r *run) checkpoint(cp store.Checkpoint) (store.Signals, error) {
	if err := r.lost(); err != nil {
		return store.Signals{}, err
	}
	cp.Fence, cp.RunGen = r.Fence, r.FirstGen
	signals, err := r.Committer.Checkpoint(r.hold, cp)
	return signals, r.written(err)
}

// written explains the error of a write. Whoever is fenced ends at once, with everything that it has started.
func (r *run) written(err error) error {
	if errors.Is(err, store.ErrFenced) {
		r.Handle.Lose()
		return fmt.Errorf("%w: %w", agent.ErrFenced, err)
	}
	if lost := r.lost(); err != nil && lost != nil {
		return lost
	}
	return err
}
