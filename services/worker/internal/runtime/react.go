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
	lease, err := x.profile.agentOf(ctx, x.agents, x.SKey, x.newest().Source)
	if err != nil {
		return x.failed(ctx, t, err)
	}
	defer lease.Release()
	if err := x.takeFirst(t); err != nil {
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
	return lease.Value.Run(ctx, in, journal(x), x.observe)
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

// takeFirst stores the prompt with what goes along with it in one statement: late rows are taken out of their place, so
// that no other run can answer them, and those who wrote what the prompt replaces are told. Most runs need no such
// statement.
func (x react) takeFirst(t *turn.Turn) error {
	if len(x.Late) == 0 && !x.owes() {
		return nil
	}
	owed, err := x.replacement(nextN(x.stored))
	if err != nil {
		return err
	}
	x.stored = append(x.stored, owed.messages...)
	rows, err := x.rowsOf(x.promptEntries(t))
	if err != nil {
		return err
	}
	result, err := x.checkpoint(store.Checkpoint{
		RunGen: x.FirstGen, Messages: append(owed.messages, rows...), Taken: x.Late, Replies: owed.replies,
	})
	if err != nil {
		return err
	}
	x.stored = append(x.stored, rows...)
	x.ring(x.hold, owed.replies, result.FirstOut)
	x.own(x.Late)
	x.Late = nil
	return nil
}

// journal stores the steps of the loop.
type journal struct{ *run }

// Checkpoint implements agent.Journal. It waits for the store as long as the run is held: a stop in between does not
// leave the outcome of a step open.
func (j journal) Checkpoint(_ context.Context, step agent.Step) (agent.Signal, error) {
	cp, err := j.stepOf(step)
	if err != nil {
		return agent.Signal{}, err
	}
	result, err := j.checkpoint(cp)
	if err != nil {
		return agent.Signal{}, err
	}
	j.steps = append(j.steps, cp.Messages...)
	j.took(cp.Taken)
	return agent.Signal{Stop: result.StopRun == j.RunID}, nil
}

// checkpoint sends cp under the run's fence.
func (r *run) checkpoint(cp store.Checkpoint) (store.CheckpointResult, error) {
	var result store.CheckpointResult
	err := r.write(func(fence store.Fence) (err error) {
		cp.Fence = fence
		result, err = r.Committer.Checkpoint(r.hold, cp)
		return err
	})
	r.ctlSeq = max(r.ctlSeq, result.CtlSeq)
	return result, err
}

// write calls f with the fence as it is now. Every write of the run goes through it.
func (r *run) write(f func(fence store.Fence) error) error {
	if err := r.lost(); err != nil {
		return err
	}
	return r.written(r.Handle.Write(f))
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
