package sweep

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

const (
	pageSize = 500
	// maxPages bounds one rule of one sweep; the next one goes on where it ended.
	maxPages    = 4
	callTimeout = 5 * time.Second
)

// Store finds what was left behind.
type Store interface {
	store.Sweep
	RunningRuns(ctx context.Context, partitions []int, after string, limit int) ([]store.ActiveRun, string, error)
	Workers(ctx context.Context) ([]store.WorkerState, error)
	StaleStops(ctx context.Context, partitions []int, age time.Duration, limit int) ([]store.StaleStop, error)
	SettleGaps(ctx context.Context, partitions []int, limit int) ([]store.Doorbell, error)
	EndFrozen(ctx context.Context, age time.Duration) (int, error)
	DueTimers(ctx context.Context, partitions []int, limit int) ([]store.Timer, error)
	MoveTimer(ctx context.Context, id string, from, to time.Time) (bool, error)
	Ready(ctx context.Context) error
}

// Taker takes runs over from owners that are gone.
type Taker interface {
	Take(ctx context.Context, run store.ActiveRun, reason string, delay time.Duration) (takeover.Result, error)
}

// Ender ends stopped runs that nobody has ended.
type Ender interface {
	EndStale(ctx context.Context, s store.StaleStop) error
}

// Publisher accepts the messages of timers.
type Publisher interface {
	Publish(ctx context.Context, m bus.Msg) (bus.Ack, error)
}

// Leases tell where runs live.
type Leases interface {
	Lookup(ctx context.Context, skeys []string) ([]*lease.Lease, error)
	Boot(ctx context.Context) (string, error)
}

// Doorbells publish without a reservation.
type Doorbells interface {
	Publish(ctx context.Context, runs []dispatch.Run, deliveries []dispatch.Delivery)
}

// Config of a Sweeper.
type Config struct {
	// Every is the time between two sweeps.
	Every time.Duration
	// Slots of one worker, for the wanted number of workers.
	Slots int
	// Retention is how long rows are kept that nobody needs any more; 0: for ever.
	Retention time.Duration
}

// Deps of a Sweeper.
type Deps struct {
	Store     Store
	Leases    Leases
	Doorbells Doorbells
	Taker     Taker
	Ender     Ender
	Bus       Publisher
	// Owned returns the partitions to sweep.
	Owned  func() []int
	Logger *slog.Logger
	Meter  metric.Meter
}

// Sweeper is a daemon.Component. Its state belongs to one goroutine.
type Sweeper struct {
	Config
	Deps
	loops   daemon.Loops
	metrics metrics

	// queued is where the next sweep of queued runs goes on, running where that of running ones does.
	queued  string
	running string
	seen    sightings
	redis   redisWatch
	store   storeWatch
	sweeps  int
	// failing are the rules that could not end the last time, so that only the first failure is reported.
	failing map[string]bool
	// purging: the last purge has left something.
	purging bool
}

// New returns a sweeper that sweeps once it is started.
func New(cfg Config, deps Deps) (*Sweeper, error) {
	s := &Sweeper{Config: cfg, Deps: deps, seen: sightings{}, failing: map[string]bool{}}
	if err := s.metrics.register(deps.Meter); err != nil {
		return nil, err
	}
	return s, nil
}

// Start begins to sweep.
func (s *Sweeper) Start(ctx context.Context) error {
	s.loops.Go(ctx, s.run)
	return nil
}

// Stop interrupts the sweep in hand.
func (s *Sweeper) Stop(ctx context.Context) error { return s.loops.Stop(ctx) }

func (s *Sweeper) run(ctx context.Context) {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.sweep(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// rule is one thing that may have been left behind. run returns how much of it was found.
type rule struct {
	name string
	run  func(s *Sweeper, ctx context.Context, owned []int) (found int, err error)
	// everywhere: it does not look at partitions.
	everywhere bool
}

func rules() []rule {
	return []rule{
		{name: "queued", run: (*Sweeper).ringRuns},
		{name: "running", run: (*Sweeper).takeOver},
		{name: "waiting", run: (*Sweeper).wake},
		{name: "deliveries", run: (*Sweeper).ringDeliveries, everywhere: true},
		{name: "gaps", run: (*Sweeper).settleGaps},
		{name: "stops", run: (*Sweeper).endStops},
		{name: "timers", run: (*Sweeper).fireTimers},
		{name: "frozen", run: (*Sweeper).endFrozen, everywhere: true},
		{name: "purge", run: (*Sweeper).purge, everywhere: true},
		{name: "backlog", run: (*Sweeper).countBacklog, everywhere: true},
	}
}

// sweep applies every rule. One that fails keeps no other from running, but while the store is down none of them does.
func (s *Sweeper) sweep(ctx context.Context) {
	s.watchRedis(ctx)
	if !s.storeAnswers(ctx) {
		return
	}
	owned := s.Owned()
	if len(owned) == 0 {
		s.queued, s.running, s.seen = "", "", sightings{}
	}
	for _, r := range rules() {
		if len(owned) == 0 && !r.everywhere {
			continue
		}
		if !s.apply(ctx, r, owned) {
			break
		}
	}
	s.store.sweepEnded()
	s.sweeps++
}

// apply reports whether the other rules have a chance.
func (s *Sweeper) apply(ctx context.Context, r rule, owned []int) bool {
	found, err := r.run(s, ctx, owned)
	if ctx.Err() != nil { // stopping
		return false
	}
	s.metrics.count(ctx, r.name, found, err)
	if errors.Is(err, store.ErrUnavailable) {
		s.store.failed(time.Now())
		if s.storeDown(ctx) {
			return false
		}
	}
	s.report(ctx, r.name, err)
	return true
}

// report logs when a rule begins to fail and when it works again.
func (s *Sweeper) report(ctx context.Context, rule string, err error) {
	failed := err != nil
	if failed == s.failing[rule] {
		return
	}
	s.failing[rule] = failed
	if failed {
		s.Logger.ErrorContext(ctx, "sweep: rule fails", "rule", rule, "err", err)
	} else {
		s.Logger.InfoContext(ctx, "sweep: rule works again", "rule", rule)
	}
}
