package agent

import (
	"context"
	"errors"
)

// Step is what has to be stored together.
type Step struct {
	Messages []Entry
	Calls    []Call
}

// Signal is the durable view that a checkpoint returns.
type Signal struct {
	// Stop ends the run with ErrStopped: nothing more is started.
	Stop bool
}

// Journal stores the steps of one run. The loop calls it from one goroutine.
type Journal interface {
	// Checkpoint stores a step; durable on return. It is called
	//   - with an assistant message, the intents of its calls and everything that was not stored before, ahead of the first
	//     of these calls (read-only ones included);
	//   - with the result of an unsafe call, at once.
	// Results of other calls ride with the next step or the final result. Any error ends the loop at once, without further
	// effect, and is returned wrapped: ErrFenced if the run is somebody else's, or whatever else the caller wants to end
	// the run with.
	Checkpoint(ctx context.Context, step Step) (Signal, error)
}

// Causes that end a run. Cancel the context of a run with one of them, but for ErrSuspended, which only the loop causes.
var (
	// ErrStopped: somebody asked for the end of this run.
	ErrStopped = errors.New("agent: run stopped")
	// ErrHandover: the run goes on in another place. Nothing more is started here, and calls that have no result stay open.
	ErrHandover = errors.New("agent: run handed over")
	// ErrSuspended: the run waits for a person, see [Result.Question]. Calls that were not started stay open.
	ErrSuspended = errors.New("agent: run suspended")
	// ErrFenced: the run is somebody else's now. Nothing may be written or started.
	ErrFenced = errors.New("agent: run fenced")
)
