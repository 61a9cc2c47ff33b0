package control

import (
	"context"
	"errors"

	"github.com/hermes-runtime/hermes/pkg/agent"
)

// ErrDraining: the worker goes away and lets its runs go.
var ErrDraining = errors.New("worker is draining")

// Handle is a run in hand. It carries two contexts:
//
//	hold ── ends when the run is no longer this worker's: nothing may be written after that
//	  └─ work ── ends also with a stop: no further step, but the end of the run is still written
type Handle struct {
	SKey  string
	Gen   int64
	RunID string

	hold, work       context.Context //nolint:containedctx // the two lives of the run that this value stands for
	endHold, endWork context.CancelCauseFunc
}

// NewHandle returns a handle whose contexts are children of ctx. Close it when the run is out of hand.
func NewHandle(ctx context.Context, skey string, gen int64, runID string) *Handle {
	h := &Handle{SKey: skey, Gen: gen, RunID: runID}
	h.hold, h.endHold = context.WithCancelCause(ctx)
	h.work, h.endWork = context.WithCancelCause(h.hold)
	return h
}

// Hold ends with agent.ErrFenced or ErrDraining as its cause.
func (h *Handle) Hold() context.Context { return h.hold }

// Work ends with the hold, with a stop (agent.ErrStopped), or with a drain (ErrDraining).
func (h *Handle) Work() context.Context { return h.work }

// Stop ends the work because somebody asked for it.
func (h *Handle) Stop() { h.endWork(agent.ErrStopped) }

// Fence ends everything: the run is somebody else's.
func (h *Handle) Fence() { h.endHold(agent.ErrFenced) }

// Drain ends the work of a worker that goes away.
func (h *Handle) Drain() { h.endWork(ErrDraining) }

// Abandon ends everything because the worker has no time left.
func (h *Handle) Abandon() { h.endHold(ErrDraining) }

// Close frees the contexts.
func (h *Handle) Close() { h.endHold(context.Canceled) }
