package control

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// ErrDraining: the worker goes away and has no time left for its runs.
var ErrDraining = errors.New("worker is draining")

// Handle is a run in hand. It carries two contexts:
//
//	hold ── ends when the run is no longer this worker's: nothing may be written after that
//	  └─ work ── ends also with a stop or a handover: no further step, but the end of the run is still written
type Handle struct {
	store.Fence

	hold, work       context.Context //nolint:containedctx // the two lives of the run that this value stands for
	endHold, endWork context.CancelCauseFunc
	claimed, leaving atomic.Bool
}

// NewHandle returns a handle whose contexts are children of ctx. Close it when the run is out of hand.
func NewHandle(ctx context.Context, fence store.Fence) *Handle {
	h := &Handle{Fence: fence}
	h.hold, h.endHold = context.WithCancelCause(ctx)
	h.work, h.endWork = context.WithCancelCause(h.hold)
	return h
}

// Claim notes that the fence is valid now. Before that the store knows nothing of this handle.
func (h *Handle) Claim() { h.claimed.Store(true) }

// Hold ends with agent.ErrFenced or ErrDraining as its cause.
func (h *Handle) Hold() context.Context { return h.hold }

// Work ends with the hold, with a stop (agent.ErrStopped), or with a handover (agent.ErrHandover).
func (h *Handle) Work() context.Context { return h.work }

// Stop ends the work because somebody asked for it.
func (h *Handle) Stop() { h.endWork(agent.ErrStopped) }

// Lose ends everything: the run is somebody else's.
func (h *Handle) Lose() { h.endHold(agent.ErrFenced) }

// Leave asks the run to be handed over at its next step boundary.
func (h *Handle) Leave() { h.leaving.Store(true) }

// Leaving reports whether the run was asked to leave.
func (h *Handle) Leaving() bool { return h.leaving.Load() }

// HandOver ends the work, wherever it is, so that the run goes on elsewhere.
func (h *Handle) HandOver() { h.endWork(agent.ErrHandover) }

// Abandon ends everything because the worker has no time left.
func (h *Handle) Abandon() { h.endHold(ErrDraining) }

// Close frees the contexts.
func (h *Handle) Close() { h.endHold(context.Canceled) }

// observe acts on what the store says about the run.
func (h *Handle) observe(s store.StopState) {
	switch {
	case !s.Held:
		h.Lose()
	case s.StopRun == h.RunID:
		h.Stop()
	}
}
