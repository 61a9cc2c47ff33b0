package slot

import (
	"context"
	"sync"
)

// room counts free slots.
type room struct {
	total int

	mu   sync.Mutex
	free int
	// freed is closed and replaced when a slot becomes free while none was.
	freed chan struct{}
}

func newRoom(total int) *room {
	return &room{total: total, free: total, freed: make(chan struct{})}
}

// wait returns the number of free slots once there are any.
func (r *room) wait(ctx context.Context) (int, error) {
	for {
		r.mu.Lock()
		free, freed := r.free, r.freed
		r.mu.Unlock()
		if free > 0 {
			return free, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// take occupies up to n slots and returns how many it got.
func (r *room) take(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, r.free)
	r.free -= n
	return n
}

// leave frees one slot.
func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free++
	if r.free == 1 {
		close(r.freed)
		r.freed = make(chan struct{})
	}
}

func (r *room) used() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total - r.free
}
