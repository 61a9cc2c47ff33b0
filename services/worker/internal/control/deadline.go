package control

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
)

// A run may go on for a term after the last sign that it is this worker's: a claim, a renewed lease, or an answer of the
// store. Nobody takes it over before that, and a process that was frozen sees on its first look at the clock that it was.
//
// Where neither Redis nor the store answers, nobody else can be told anything either, and a longer bound holds: no tool
// and no model call begins after patience, but what a model says is still received, and writes are tried for as long as it
// takes (forever), since the store itself refuses those of a run that was lost.
const (
	term     = lease.TTL - lease.Margin
	patience = 30 * time.Second
	forever  = time.Duration(math.MaxInt64)
)

// outageAge is how long a failed question counts as an outage: a little longer than it takes to fail again. An older one
// means that this process was frozen.
const outageAge = pollEvery + pollTimeout + time.Second

var errExpired = fmt.Errorf("%w: nobody has confirmed the run in time", agent.ErrFenced)

// outage is when the store last did not answer, 0 if it does.
type outage struct{ at atomic.Int64 }

// deadline says how long a run may go on.
type deadline struct {
	clock boottime.Clock
	// confirmed is the instant of the last sign, limit the one from which on signs do not count, 0: never.
	confirmed, limit atomic.Int64
	outage           *outage

	mu sync.Mutex
	// moved is closed at the next sign; nil while nobody waits.
	moved chan struct{}
}

func (d *deadline) init(clock boottime.Clock) {
	d.clock, d.outage = clock, new(outage)
	d.confirmed.Store(int64(clock()))
}

// Confirm notes that the run was this worker's at an instant of boottime, the one before the call that told so.
func (h *Handle) Confirm(at time.Duration) {
	d := &h.deadline
	if limit := d.limit.Load(); limit != 0 && int64(at) >= limit {
		return
	}
	for {
		was := d.confirmed.Load()
		if int64(at) <= was {
			return
		}
		if d.confirmed.CompareAndSwap(was, int64(at)) {
			d.wake()
			return
		}
	}
}

// Limit ends the run's time after d, whatever confirms it, so that one that hangs can be taken over.
func (h *Handle) Limit(d time.Duration) { h.deadline.limit.Store(int64(h.deadline.clock() + d)) }

// Overdue reports whether the limit has passed.
func (h *Handle) Overdue() bool {
	limit := h.deadline.limit.Load()
	return limit != 0 && int64(h.deadline.clock()) >= limit
}

// Valid reports whether the run may begin a tool or a model call or show anything.
func (h *Handle) Valid() bool { return h.hold.Err() == nil && h.deadline.within(patience) }

// Check is nil while the run is valid, and agent.ErrFenced if it is lost or its deadline is past. Ask it right before
// everything that others can see. It does not wait: a run that was frozen or cut off for a while, and that nobody has
// taken over, is spared by Await.
func (h *Handle) Check() error {
	if err := h.lost(); err != nil {
		return err
	}
	if !h.deadline.within(patience) {
		return errExpired
	}
	return nil
}

// Await returns nil as soon as the run is valid: at once, or after the sign that it is still this worker's although its
// deadline is past. It returns agent.ErrFenced once the run is lost, and the cause of ctx.
func (h *Handle) Await(ctx context.Context) error { return h.await(ctx, patience) }

func (h *Handle) await(ctx context.Context, bound time.Duration) error {
	var moved <-chan struct{} // nil: look once more after it is there, so that no sign is missed
	for {
		if err := h.lost(); err != nil {
			return err
		}
		if h.deadline.within(bound) {
			return nil
		}
		if moved == nil {
			moved = h.deadline.next()
			continue
		}
		select {
		case <-moved:
			moved = nil
		case <-h.hold.Done():
		case <-ctx.Done():
			if h.hold.Err() == nil {
				return context.Cause(ctx)
			}
		}
	}
}

// expired reports that nothing has confirmed the run for its term, whatever the reason.
func (d *deadline) expired() bool { return d.age() >= term }

func (d *deadline) age() time.Duration { return d.clock() - time.Duration(d.confirmed.Load()) }

// within reports whether the deadline is ahead, or the bound for an outage if there is one.
func (d *deadline) within(bound time.Duration) bool {
	age := d.age()
	if age < term {
		return true
	}
	at := d.outage.at.Load()
	return at != 0 && d.clock()-time.Duration(at) < outageAge && age < bound
}

// next returns a channel that is closed when the deadline may have moved.
func (d *deadline) next() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil {
		d.moved = make(chan struct{})
	}
	return d.moved
}

func (d *deadline) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}
