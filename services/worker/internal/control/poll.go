package control

import (
	"context"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	pollEvery   = 2 * time.Second
	pollTimeout = 5 * time.Second
	pollLimit   = 10_000
)

// poll is the backstop for signals that were lost, and confirms the runs.
func (l *Listener) poll(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	down := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		down = l.edge(ctx, down, l.ask(ctx))
	}
}

// edge logs when the store goes and when it comes back.
func (l *Listener) edge(ctx context.Context, was bool, err error) (down bool) {
	switch {
	case err != nil && !was && ctx.Err() == nil:
		l.logger.WarnContext(ctx, "stops cannot be read", "err", err)
	case err == nil && was:
		l.logger.InfoContext(ctx, "stops are read again")
	}
	return err != nil
}

// ask puts one question for all runs in hand. While the store does not answer they know that there is an outage.
func (l *Listener) ask(ctx context.Context) error {
	handles := l.claimed()
	for some := range slices.Chunk(handles, pollLimit) {
		if err := l.confirm(ctx, some); err != nil {
			l.outage.at.Store(int64(l.clock()))
			for _, h := range handles {
				h.deadline.wake()
			}
			return err
		}
	}
	l.outage.at.Store(0)
	return nil
}

func (l *Listener) confirm(ctx context.Context, handles []*Handle) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	fences := make([]store.Fence, len(handles))
	for i, h := range handles {
		fences[i] = h.Fence()
	}
	at := l.clock()
	states, err := l.store.Stops(ctx, fences)
	if err != nil {
		return err
	}
	for i, h := range handles {
		h.observe(fences[i], states[i], at)
		if h.Overdue() && h.deadline.expired() {
			h.Lose() // nothing renews it any more: it is the sweeper's
		}
	}
	return nil
}

func (l *Listener) claimed() []*Handle {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var claimed []*Handle
	for _, hs := range l.runs {
		for _, h := range hs {
			if h.claimed.Load() {
				claimed = append(claimed, h)
			}
		}
	}
	return claimed
}
