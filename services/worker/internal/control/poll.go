package control

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	pollEvery   = 2 * time.Second
	pollTimeout = 5 * time.Second
)

// poll is the backstop for signals that were lost.
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

// ask puts one question for all runs in hand.
func (l *Listener) ask(ctx context.Context) error {
	handles := l.claimed()
	if len(handles) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	fences := make([]store.Fence, len(handles))
	for i, h := range handles {
		fences[i] = h.Fence
	}
	states, err := l.store.Stops(ctx, fences)
	if err != nil {
		return err
	}
	for i, h := range handles {
		h.observe(states[i]) // one that has ended meanwhile is lost, which nobody notices any more
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
