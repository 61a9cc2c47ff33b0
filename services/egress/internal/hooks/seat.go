package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
)

// bucket holds the seats, beside the cursors of polls.
const bucket = "cursors"

// Timing of the seats.
type Timing struct {
	// Watch is how often others look at a seat, Renew how often its holder says that it lives.
	Watch, Renew time.Duration
	// Expire is how long a seat has to rest before it is taken over, by the clock of the one that takes it. The holder
	// leaves it Margin before.
	Expire, Margin time.Duration
	// Call bounds one call to the broker.
	Call time.Duration
}

// DefaultTiming is that of production. Expire is longer than the broker waits for an acknowledgement: what a dead holder
// had in hand comes again before anything newer, and the order stays.
func DefaultTiming() Timing {
	return Timing{
		Watch: 2 * time.Second, Renew: 5 * time.Second, Expire: 36 * time.Second, Margin: 5 * time.Second, Call: 3 * time.Second,
	}
}

// seat is a key that one process holds at a time: its revision is the fence.
type seat struct {
	kv     bus.KV
	key    string
	holder string
	timing Timing
	logger *slog.Logger
}

// held is the value of the key.
type held struct {
	// Holder is "" if nobody holds it.
	Holder string `json:"holder"`
	// Beat makes every value a new one.
	Beat int64 `json:"beat"`
}

// run calls work while this process holds the seat, until ctx ends. work returns when its context ends.
func (s *seat) run(ctx context.Context, work func(context.Context)) {
	for ctx.Err() == nil {
		revision, began := s.take(ctx)
		if revision == 0 {
			return
		}
		s.logger.InfoContext(ctx, "hook served here", "key", s.key)
		s.hold(ctx, revision, began, work)
		if ctx.Err() == nil {
			s.logger.WarnContext(ctx, "hook no longer served here", "key", s.key)
		}
	}
}

// take waits until the seat is free and returns the revision of its new value and the moment before it was written; 0 when
// ctx has ended.
func (s *seat) take(ctx context.Context) (revision uint64, began time.Time) {
	var seen uint64
	since := time.Now()
	for {
		began = time.Now()
		current, at, err := s.look(ctx)
		switch {
		case err != nil:
			s.logger.DebugContext(ctx, "seat not read", "key", s.key, "err", err)
			seen = 0
		case at != seen:
			seen, since = at, began
		}
		if err == nil && (current.Holder == "" || time.Since(since) >= s.timing.Expire) {
			revision, err := s.put(ctx, held{Holder: s.holder, Beat: current.Beat + 1}, at)
			if err == nil {
				return revision, began
			}
			s.logger.DebugContext(ctx, "seat not taken", "key", s.key, "err", err)
		}
		if !daemon.Sleep(ctx, s.timing.Watch) {
			return 0, began
		}
	}
}

// look reads the seat; one that was never taken has revision 0.
func (s *seat) look(ctx context.Context) (held, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Call)
	defer cancel()
	raw, revision, err := s.kv.Get(ctx, s.key)
	if errors.Is(err, bus.ErrNotFound) {
		return held{}, 0, nil
	}
	if err != nil {
		return held{}, 0, err // says what it read
	}
	var h held
	if err := json.Unmarshal(raw, &h); err != nil {
		return held{}, 0, fmt.Errorf("decode seat %s: %w", s.key, err)
	}
	return h, revision, nil
}

func (s *seat) put(ctx context.Context, h held, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Call)
	defer cancel()
	raw, err := json.Marshal(h)
	if err != nil {
		return 0, fmt.Errorf("encode seat: %w", err)
	}
	return s.kv.Put(ctx, s.key, raw, revision)
}

// hold works until ctx ends or the seat may be another's, and leaves the seat free if it is not.
func (s *seat) hold(ctx context.Context, revision uint64, began time.Time, work func(context.Context)) {
	working, end := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() { work(working) })
	last := s.keep(ctx, revision, began)
	end()
	worker.Wait()
	if last == 0 {
		return
	}
	if _, err := s.put(context.WithoutCancel(ctx), held{}, last); err != nil { // the call has a bound of its own
		s.logger.DebugContext(ctx, "seat not left, it expires", "key", s.key, "err", err)
	}
}

// keep renews the seat until ctx ends, and returns its last revision; 0: it may be another's.
func (s *seat) keep(ctx context.Context, revision uint64, began time.Time) uint64 {
	for beat := int64(2); ; beat++ {
		certain := began.Add(s.timing.Expire - s.timing.Margin)
		if !daemon.Sleep(ctx, min(s.timing.Renew, time.Until(certain))) {
			return revision
		}
		now := time.Now()
		if !now.Before(certain) {
			return 0
		}
		next, err := s.put(ctx, held{Holder: s.holder, Beat: beat}, revision)
		switch {
		case err == nil:
			revision, began = next, now
		case errors.Is(err, bus.ErrConflict):
			if revision = s.adopt(ctx); revision == 0 {
				return 0
			}
		case ctx.Err() == nil:
			s.logger.WarnContext(ctx, "seat not renewed", "key", s.key, "err", err)
		}
	}
}

// adopt finds the revision of a renewal of ours whose outcome we did not learn; 0: the seat is another's.
func (s *seat) adopt(ctx context.Context) uint64 {
	current, revision, err := s.look(ctx)
	if err != nil || current.Holder != s.holder {
		return 0
	}
	return revision
}
