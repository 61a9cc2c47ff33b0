package runapi

import (
	"context"
	"log/slog"
	"time"

	"github.com/hermes-runtime/hermes/services/internal/follow"
)

// Deps are what runs are followed with.
type Deps struct {
	Store  Store
	Bus    follow.Frames
	Logger *slog.Logger
	Timing Timing
}

// Timing says how often and how long.
type Timing struct {
	// Look is the time between two looks into the store.
	Look time.Duration
	// Ask bounds a request for a snapshot. Renew is the time after which one is asked for although no frame is missing:
	// a worker streams for those who asked within 60 s.
	Ask, Renew time.Duration
	// Admission is how long a message may be unknown before it is not found.
	Admission time.Duration
	// Settle bounds the wait for frames that were sent before the end of a run and arrive behind the news of it.
	Settle time.Duration
	// Ping is the time between two comments that keep a quiet stream open.
	Ping time.Duration
	// Write bounds one write to a client that does not read.
	Write time.Duration
	// Answer is how long a client waits for a whole answer that did not say how long.
	Answer time.Duration
}

// DefaultTiming suits production.
func DefaultTiming() Timing {
	t := follow.DefaultTiming()
	return Timing{
		Look: t.Look, Ask: t.Ask, Renew: t.Renew, Settle: t.Settle,
		Admission: 15 * time.Second, Ping: 15 * time.Second, Write: 30 * time.Second, Answer: 10 * time.Minute,
	}
}

// Feed yields the events of one target. It has to be closed and is used by one goroutine.
type Feed struct {
	*follow.Feed
	target Target
}

// Open subscribes to the frames of t's session: nothing that is sent from now on is missed. from is the place of the
// last event that the client has, nil if it has none.
func (d Deps) Open(ctx context.Context, t Target, from *Position) *Feed {
	deps := follow.Deps{
		Bus: d.Bus, Logger: d.Logger,
		Timing: follow.Timing{Look: d.Timing.Look, Ask: d.Timing.Ask, Renew: d.Timing.Renew, Settle: d.Timing.Settle},
		Ending: func(ctx context.Context) (Event, bool, error) { return final(ctx, d.Store, t) },
	}
	return &Feed{Feed: follow.Open(ctx, deps, t, from), target: t}
}
