package sweep

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
	"github.com/hermes-runtime/hermes/services/router/internal/partition"
)

const (
	pageSize = 500
	// maxPages bounds one sweep; the next one goes on where it ended.
	maxPages = 4
	// cautiousAge is the age at which runs are rung while it is not known whether a lease holds them: Redis is down, or
	// lost its data less than cautiousAge ago.
	cautiousAge = 2 * lease.TTL
	// storeRest gives every egress time to mark what it sent, after the store was unreachable.
	storeRest = 10 * time.Second
	// countEvery sweeps the backlog is counted.
	countEvery  = 5
	callTimeout = 5 * time.Second
)

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
}

// Deps of a Sweeper.
type Deps struct {
	Store     store.Sweep
	Leases    Leases
	Doorbells Doorbells
	// Owned returns the partitions to sweep.
	Owned  func() []int
	Logger *slog.Logger
	Meter  metric.Meter
}

// Sweeper is a daemon.Component. Its state belongs to one goroutine.
type Sweeper struct {
	Config
	Deps
	loops  daemon.Loops
	gauges gauges

	// cursor is where the next sweep of queued runs goes on.
	cursor string
	redis  redisWatch
	store  storeWatch
	sweeps int
}

// New returns a sweeper that sweeps once it is started.
func New(cfg Config, deps Deps) (*Sweeper, error) {
	s := &Sweeper{Config: cfg, Deps: deps}
	if err := s.gauges.register(deps.Meter); err != nil {
		return nil, err
	}
	return s, nil
}

// Start begins to sweep.
func (s *Sweeper) Start(ctx context.Context) error {
	s.loops.Go(ctx, s.run)
	return nil
}

// Stop lets the sweep in hand end.
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

func (s *Sweeper) sweep(ctx context.Context) {
	s.watchRedis(ctx)
	err := s.ringRuns(ctx)
	s.storeAnswered(ctx, err)
	if err == nil && !s.store.resting(time.Now()) {
		err = s.ringDeliveries(ctx)
		s.storeAnswered(ctx, err)
	}
	if err == nil && s.sweeps%countEvery == 0 {
		s.storeAnswered(ctx, s.count(ctx))
	}
	s.sweeps++
}

// ringRuns is rule (a): queued runs that are older than minAge and held by nobody.
func (s *Sweeper) ringRuns(ctx context.Context) error {
	owned := s.Owned()
	if len(owned) == 0 {
		s.cursor = ""
		return nil
	}
	for range maxPages {
		page, err := s.page(ctx, owned)
		if err != nil {
			return err
		}
		if runs := s.unheld(ctx, page); len(runs) > 0 {
			s.Doorbells.Publish(ctx, runs, nil)
		}
		if s.cursor == "" {
			return nil
		}
	}
	return nil
}

func (s *Sweeper) page(ctx context.Context, owned []int) ([]store.QueuedRun, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, next, err := s.Store.QueuedRuns(ctx, owned, s.redis.minAge(time.Now()), s.cursor, pageSize)
	s.cursor = next // "" after an error: begin again
	return page, err
}

// unheld returns the doorbells of the runs that no lease of their generation holds.
func (s *Sweeper) unheld(ctx context.Context, page []store.QueuedRun) []dispatch.Run {
	if len(page) == 0 {
		return nil
	}
	held := s.lookup(ctx, page)
	var runs []dispatch.Run
	for i, r := range page {
		switch {
		case held == nil && r.Age < cautiousAge:
		case held != nil && held[i] != nil && held[i].Gen >= r.Gen:
		default:
			runs = append(runs, dispatch.Run{SKey: r.SKey, Class: r.RunClass, Gen: r.Gen, RunID: r.RunID, N: bucket(r.Age)})
		}
	}
	return runs
}

// lookup returns the leases of a page, nil if Redis did not answer.
func (s *Sweeper) lookup(ctx context.Context, page []store.QueuedRun) []*lease.Lease {
	if s.redis.down {
		return nil
	}
	skeys := make([]string, len(page))
	for i, r := range page {
		skeys[i] = r.SKey
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held, err := s.Leases.Lookup(call, skeys)
	if err != nil {
		s.redisDown(ctx, err)
		return nil
	}
	return held
}

// ringDeliveries is rule (d): outbox rows that are due and claimed by nobody. The ring of an unclaimed row repeats the
// first one, which the broker drops if that one arrived.
func (s *Sweeper) ringDeliveries(ctx context.Context) error {
	for range maxPages {
		due, err := s.due(ctx)
		if err != nil {
			return err
		}
		deliveries := make([]dispatch.Delivery, len(due))
		for i, d := range due {
			deliveries[i] = dispatch.Delivery{SKey: d.SKey, Platform: d.Platform, OutSeq: d.OutSeq, N: int64(d.Attempts)}
		}
		if len(due) > 0 {
			s.Doorbells.Publish(ctx, nil, deliveries)
		}
		if len(due) < pageSize {
			return nil
		}
	}
	return nil
}

func (s *Sweeper) due(ctx context.Context) ([]store.Doorbell, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.Store.DueDeliveries(ctx, pageSize)
}

func (s *Sweeper) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	running, queued, err := s.Store.Backlog(ctx, partition.All())
	if err != nil {
		return err
	}
	s.gauges.record(ctx, running, queued, s.Slots)
	return nil
}

// storeAnswered notes whether the store answered and logs what changed.
func (s *Sweeper) storeAnswered(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // stopping
	}
	down := errors.Is(err, store.ErrUnavailable)
	switch edge := s.store.note(down, time.Now()); {
	case edge && down:
		s.Logger.WarnContext(ctx, "sweep: store unavailable", "err", err)
	case edge:
		s.Logger.InfoContext(ctx, "sweep: store available again", "rest", storeRest)
	case err != nil && !down:
		s.Logger.ErrorContext(ctx, "sweep", "err", err)
	}
}
