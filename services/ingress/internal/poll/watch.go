package poll

import (
	"context"
	"errors"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
)

// watcher looks at the key until it can be taken.
type watcher struct {
	p  *Poller
	kv bus.KV
	// revision is the last one that was seen, since when.
	revision uint64
	since    time.Time
	failing  bool
}

// acquire returns once the key is ours, or an error when ctx has ended.
func (p *Poller) acquire(ctx context.Context) (*cursor, error) {
	w := &watcher{p: p}
	for {
		c, err := w.look(ctx)
		if c != nil {
			return c, nil
		}
		w.note(ctx, err)
		if !daemon.Sleep(ctx, p.Timing.Watch) {
			return nil, context.Cause(ctx)
		}
	}
}

// look takes the key if it is free, or if its owner has not moved it for too long. A nil cursor without an error means
// that somebody else has it.
func (w *watcher) look(ctx context.Context) (*cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, w.p.Timing.Write)
	defer cancel()
	if w.kv == nil {
		kv, err := w.p.Buckets.OpenKV(ctx, Bucket)
		if err != nil {
			return nil, err
		}
		w.kv = kv
	}
	stored, revision, err := get(ctx, w.kv, w.p.Key)
	if errors.Is(err, bus.ErrNotFound) {
		return w.take(ctx, state{}, 0)
	}
	if err != nil {
		return nil, err
	}
	if w.since.IsZero() || revision != w.revision {
		w.revision, w.since = revision, time.Now()
	}
	free := stored.Owner == "" || stored.Owner == w.p.owner
	if !free && time.Since(w.since) < w.p.Timing.Expire {
		return nil, nil
	}
	return w.take(ctx, stored, revision)
}

func (w *watcher) take(ctx context.Context, s state, revision uint64) (*cursor, error) {
	began := time.Now()
	c := &cursor{kv: w.kv, key: w.p.Key, timing: w.p.Timing, state: s, revision: revision}
	err := c.put(ctx, began, func(s *state) { s.Owner = w.p.owner })
	switch {
	case errors.Is(err, bus.ErrConflict):
		return nil, nil // another one was faster
	case err != nil:
		return nil, err
	default:
		return c, nil
	}
}

// note logs when the broker stops to answer.
func (w *watcher) note(ctx context.Context, err error) {
	if err != nil && !w.failing && ctx.Err() == nil {
		w.p.Logger.WarnContext(ctx, "cursor not readable", "key", w.p.Key, "err", err)
	}
	w.failing = err != nil
}
