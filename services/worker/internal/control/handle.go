package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
)

// ErrDraining: the worker goes away and has no time left for its runs.
var ErrDraining = errors.New("worker is draining")

// Handle is a run in hand. It carries two contexts:
//
//	hold ── ends when the run is no longer this worker's: nothing may be written after that
//	  └─ work ── ends also with a stop or a handover: no further step, but the end of the run is still written
//
// Besides it knows until when the run may go on, see [Handle.Check], and under which fence it writes, see [Handle.Write].
type Handle struct {
	// SKey and RunID never change; generation and owner do, see Fence.
	SKey  string
	RunID uuid.UUID

	hold, work       context.Context //nolint:containedctx // the two lives of the run that this value stands for
	endHold, endWork context.CancelCauseFunc
	claimed, leaving atomic.Bool
	// added is the newest row that a signal has told of.
	added atomic.Int64

	ownership ownership
	deadline  deadline
}

// NewHandle returns a handle whose contexts are children of ctx. Close it when the run is out of hand.
func NewHandle(ctx context.Context, fence store.Fence) *Handle {
	return NewHandleWithClock(ctx, fence, boottime.Now)
}

// NewHandleWithClock is NewHandle for tests that let deadlines pass.
func NewHandleWithClock(ctx context.Context, fence store.Fence, clock boottime.Clock) *Handle {
	h := &Handle{SKey: fence.SKey, RunID: fence.RunID, ownership: ownership{fence: fence, first: fence.Gen}}
	h.deadline.init(clock)
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

// Added is the newest message for a running turn that a signal has told of, 0 if there was none. Others may be in the
// inbox: signals get lost.
func (h *Handle) Added() int64 { return h.added.Load() }

// add notes a message for the running turn.
func (h *Handle) add(seq int64) {
	for {
		was := h.added.Load()
		if seq <= was || h.added.CompareAndSwap(was, seq) {
			return
		}
	}
}

// HandOver ends the work, wherever it is, so that the run goes on elsewhere.
func (h *Handle) HandOver() { h.endWork(agent.ErrHandover) }

// Abandon ends everything because the worker has no time left.
func (h *Handle) Abandon() { h.endHold(ErrDraining) }

// Close frees the contexts.
func (h *Handle) Close() { h.endHold(context.Canceled) }

// lost is agent.ErrFenced, with the reason, once the hold has ended.
func (h *Handle) lost() error {
	cause := context.Cause(h.hold)
	if cause == nil || errors.Is(cause, agent.ErrFenced) {
		return cause
	}
	return fmt.Errorf("%w: %w", agent.ErrFenced, cause)
}
