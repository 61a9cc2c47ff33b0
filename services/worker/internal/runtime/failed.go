package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
)

const outcomePassedOn = "passed_on"

// panicPause is the rest of a run that has panicked once; it doubles each time.
const panicPause = time.Second

// rescue decides what becomes of a run that broke off. Another attempt may do better after a panic; what was refused once
// is refused again.
func (r *run) rescue(reason error) error {
	var panicked *panicError
	if errors.As(reason, &panicked) {
		return r.passOn(reason)
	}
	return r.apologise(reason)
}

// passOn leaves the run to its next attempt, after a pause, and rings for nobody. A run that has cost too many attempts is
// given up.
func (r *run) passOn(reason error) error {
	var result takeover.Result
	err := r.write(func(fence store.Fence) error {
		s, err := read(r.hold, func(ctx context.Context) (store.Session, error) { return r.Store.Session(ctx, r.SKey) })
		if err != nil {
			return err
		}
		result, err = read(r.hold, func(ctx context.Context) (takeover.Result, error) {
			return r.Takeover.Take(ctx, store.ActiveRun{
				SKey: r.SKey, Tenant: r.Tenant, RunClass: s.RunClass, Gen: fence.Gen, RunID: fence.RunID, Owner: fence.Owner,
				Attempt: s.Attempt, Stall: s.Stall, StallKey: s.StallKey,
			}, failure(reason), panicPause)
		})
		return err
	})
	if err != nil {
		return err
	}
	switch result.Outcome {
	case takeover.Queued:
		r.passedOn = true
	case takeover.Dead:
		r.committed, r.state = true, store.RunDead
		r.Stream.End(r.hold, string(r.state))
		r.next = slot.Ended{NextRun: result.RunID, NextGen: result.Gen}
	case takeover.Moved:
		r.Handle.Lose()
		return agent.ErrFenced
	}
	return nil
}
