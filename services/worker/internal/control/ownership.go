package control

import (
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// ownership is the fence of a run. It is replaced when Redis has forgotten the lease of the run: under the fence of
// before, a write that is on its way would find the run in other hands, and so writes and replacement exclude each other.
type ownership struct {
	mu    sync.Mutex
	fence store.Fence
	// first is the generation with which the run came into this worker's hands.
	first int64
	// writes are those on their way.
	writes int
	// replaced is closed and nil again when a replacement has ended.
	replaced chan struct{}
}

// Fence is the condition of the run's writes as it is now. To write use Write: it may change at any time.
func (h *Handle) Fence() store.Fence {
	h.ownership.mu.Lock()
	defer h.ownership.mu.Unlock()
	return h.ownership.fence
}

// Write calls f with the fence as it is now, which nobody changes until f has returned: every write of the run goes through
// it. It returns agent.ErrFenced, without calling f, once the run is lost. Where the deadline is past it first waits until
// the store has confirmed the run or shown that it is lost; while the store does not answer it tries nevertheless, for the
// fence decides about every write.
func (h *Handle) Write(f func(fence store.Fence) error) error {
	fence, err := h.beginWrite()
	if err != nil {
		return err
	}
	defer h.endWrite()
	return f(fence)
}

func (h *Handle) beginWrite() (store.Fence, error) {
	o := &h.ownership
	for {
		if err := h.await(h.hold, forever); err != nil {
			return store.Fence{}, err
		}
		o.mu.Lock()
		replaced := o.replaced
		if replaced == nil {
			o.writes++
			fence := o.fence
			o.mu.Unlock()
			return fence, nil
		}
		o.mu.Unlock()
		select {
		case <-replaced:
		case <-h.hold.Done():
		}
	}
}

func (h *Handle) endWrite() {
	h.ownership.mu.Lock()
	defer h.ownership.mu.Unlock()
	h.ownership.writes--
}

// BeginReclaim returns the fence and holds off writes until EndReclaim. It is refused, and EndReclaim must not be called,
// while a write is on its way, before the claim, and once the run is lost.
func (h *Handle) BeginReclaim() (store.Fence, bool) {
	if !h.claimed.Load() || h.hold.Err() != nil {
		return store.Fence{}, false
	}
	o := &h.ownership
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writes > 0 || o.replaced != nil {
		return store.Fence{}, false
	}
	o.replaced = make(chan struct{})
	return o.fence, true
}

// EndReclaim lets writes go on under fence, which is the one of before if nothing has changed.
func (h *Handle) EndReclaim(fence store.Fence) {
	o := &h.ownership
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fence = fence
	close(o.replaced)
	o.replaced = nil
}

// late reports whether a signal was meant for an owner before this worker. Signals without generation are for everyone.
func (h *Handle) late(gen int64) bool { return gen != 0 && gen < h.ownership.first }

// observe acts on what the store has said at an instant about the run under a fence.
func (h *Handle) observe(asked store.Fence, s store.StopState, at time.Duration) {
	switch {
	case s.Held && s.StopRun == h.RunID:
		h.Confirm(at)
		h.Stop()
	case s.Held:
		h.Confirm(at)
	case h.settled(asked):
		h.Lose()
	}
}

// settled reports whether the fence is still the one that was asked about and nothing is on its way that explains why it
// is not valid: a write ends a run or learns from its own answer that it is lost.
func (h *Handle) settled(asked store.Fence) bool {
	o := &h.ownership
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fence == asked && o.replaced == nil && o.writes == 0
}
