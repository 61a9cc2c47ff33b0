package follow

import (
	"context"
	"log/slog"
	"time"
)

// watch looks into the store until there is a final event, without holding up the frames.
type watch struct {
	ending Ending
	every  time.Duration
	logger *slog.Logger
	skey   string
	// final gets the event, at most once.
	final chan Event
	// kicks asks for a look now.
	kicks chan struct{}
}

func newWatch(d Deps, skey string) *watch {
	return &watch{
		ending: d.Ending, every: d.Timing.Look, logger: d.Logger, skey: skey,
		final: make(chan Event, 1), kicks: make(chan struct{}, 1),
	}
}

// kick asks for a look now.
func (w *watch) kick() {
	select {
	case w.kicks <- struct{}{}:
	default: // one is coming
	}
}

func (w *watch) run(ctx context.Context) {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for {
		e, ok, err := w.ending(ctx)
		if err == nil && ok {
			w.final <- e
			return
		}
		if err != nil && ctx.Err() == nil { // the next look may do better
			w.logger.DebugContext(ctx, "run not read", "skey", w.skey, "err", err)
		}
		select {
		case <-w.kicks:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
