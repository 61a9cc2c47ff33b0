package runapi

import (
	"context"
	"time"
)

// watch looks into the store until the target has its final event, without holding up the frames.
type watch struct {
	Deps
	target Target
	// final gets the event, at most once.
	final chan Event
	// kicks asks for a look now.
	kicks chan struct{}
}

func (d Deps) watch(t Target) *watch {
	return &watch{Deps: d, target: t, final: make(chan Event, 1), kicks: make(chan struct{}, 1)}
}

// kick asks for a look now.
func (w *watch) kick() {
	select {
	case w.kicks <- struct{}{}:
	default: // one is coming
	}
}

func (w *watch) run(ctx context.Context) {
	ticker := time.NewTicker(w.Timing.Look)
	defer ticker.Stop()
	for {
		e, ok, err := final(ctx, w.Store, w.target)
		if ok {
			w.final <- e
			return
		}
		if err != nil && ctx.Err() == nil { // the next look may do better
			w.Logger.DebugContext(ctx, "run not read", "skey", w.target.SKey, "err", err)
		}
		select {
		case <-w.kicks:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
