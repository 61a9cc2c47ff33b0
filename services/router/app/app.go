package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
	"github.com/hermes-runtime/hermes/services/router/internal/admission"
	"github.com/hermes-runtime/hermes/services/router/internal/cancel"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
	"github.com/hermes-runtime/hermes/services/router/internal/partition"
	"github.com/hermes-runtime/hermes/services/router/internal/sweep"
	"github.com/hermes-runtime/hermes/services/router/internal/trim"
)

const (
	scope      = "github.com/hermes-runtime/hermes/services/router"
	sweepEvery = time.Second
)

// App is a router. It is a daemon.Component and owns none of its backends.
type App struct {
	id       string
	backends backends.Backends
	logger   *slog.Logger
	group    daemon.Group
	parts    []daemon.Named

	partitions *partition.Coordinator
}

// timing is what tests shorten.
type timing struct {
	renewal, sweep time.Duration
}

// New wires a router.
func New(cfg config.Config, b backends.Backends) (*App, error) {
	return build(cfg, b, timing{renewal: lease.PartitionRenewal, sweep: sweepEvery})
}

func build(cfg config.Config, b backends.Backends, t timing) (*App, error) {
	if err := check(b); err != nil {
		return nil, err
	}
	id := routerID(cfg.Router.ID)
	logger := b.Logger.With("router_id", id)
	meter, tracer := b.Meters.Meter(scope), b.Traces.Tracer(scope)

	emitter := hook.NewEmitter(b.Bus, logger)
	dispatcher, err := dispatch.New(dispatch.Deps{
		RouterID: id, MaxRunning: maxRunning(cfg), Sessions: b.Store, Leases: b.Leases, Bus: b.Bus,
		Logger: logger, Tracer: tracer, Meter: meter,
	})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	canceller := cancel.New(cancel.Deps{Store: b.Store, Bells: dispatcher, Events: emitter, Logger: logger})
	admitter, err := admission.New(admission.Deps{
		Log: b.Bus, Store: b.Store, Bells: dispatcher, Canceller: canceller, Events: emitter, KeyOptions: keyOptions(cfg), Busy: busy(cfg),
		Logger: logger, Tracer: tracer, Meter: meter,
	})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	partitions := partition.New(partition.Config{RouterID: id, Renewal: t.renewal},
		partition.Deps{Leases: b.Leases, Owner: admitter, Logger: logger})
	taker, err := takeover.New(takeover.Deps{
		Store: b.Store, Bus: b.Bus, Events: emitter, StallLimit: cfg.Engine.StallLimit, AttemptLimit: cfg.Engine.AttemptLimit,
		Logger: logger, Meter: meter,
	})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	sweeper, err := sweep.New(sweep.Config{
		Every: t.sweep, Slots: cfg.Worker.Slots, Retention: cfg.Engine.InboxRetention,
	}, sweep.Deps{
		Store: b.Store, Leases: b.Leases, Doorbells: dispatcher, Taker: taker, Ender: canceller, Bus: b.Bus, Owned: partitions.Owned,
		Logger: logger, Meter: meter,
	})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	trimmer, err := trim.New(trim.Deps{Log: b.Bus, Store: b.Store, Owned: partitions.Owned, Logger: logger, Meter: meter})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return &App{
		id: id, backends: b, logger: logger, group: daemon.Group{Logger: logger}, partitions: partitions,
		parts: []daemon.Named{
			{Name: "events", Component: emitter},
			{Name: "dispatch", Component: dispatcher},
			{Name: "stops", Component: canceller},
			{Name: "admission", Component: admitter},
			{Name: "partitions", Component: partitions},
			{Name: "sweep", Component: sweeper},
			{Name: "trim", Component: trimmer},
		},
	}, nil
}

// keyOptions are those with which the doors build session keys.
func keyOptions(cfg config.Config) func(profile string) session.Options {
	return func(profile string) session.Options { return cfg.Profiles[profile].KeyOptions(profile) }
}

// busy is what the profiles do about messages that come while a conversation is busy.
func busy(cfg config.Config) func(profile string) admission.Busy {
	return func(name string) admission.Busy {
		p := cfg.Profiles[name].WithDefaults()
		return admission.Busy{
			Policy: p.BusyPolicy, Quiet: p.Collect.Quiet, Max: p.Collect.Max, Pending: p.Limits.Pending,
		}
	}
}

// maxRunning are the limits of the tenants that have one.
func maxRunning(cfg config.Config) map[string]int {
	limits := map[string]int{}
	for name, t := range cfg.Tenants {
		if t.MaxRunning > 0 {
			limits[name] = t.MaxRunning
		}
	}
	return limits
}

func check(b backends.Backends) error {
	var errs []error
	for _, need := range []struct {
		name    string
		missing bool
	}{
		{"bus", b.Bus == nil},
		{"leases", b.Leases == nil},
		{"store", b.Store == nil},
		{"logger", b.Logger == nil},
		{"traces", b.Traces == nil},
		{"meters", b.Meters == nil},
	} {
		if need.missing {
			errs = append(errs, fmt.Errorf("router: no %s", need.name))
		}
	}
	return errors.Join(errs...)
}

// routerID returns the configured name, or one that no other router of this cluster has.
func routerID(configured string) string {
	if configured != "" {
		return configured
	}
	host, err := os.Hostname()
	if err != nil {
		host = "router" // the suffix alone makes it unique
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}

// ID is the name of this router among all.
func (a *App) ID() string { return a.id }

// Start returns when the router has its first share of the partitions. It needs the broker; Redis and the store may
// come later.
func (a *App) Start(ctx context.Context) error {
	if err := a.backends.Bus.EnsureStreams(ctx); err != nil {
		return fmt.Errorf("router: create streams: %w", err)
	}
	return a.group.Start(ctx, a.parts...)
}

// Stop stops reading, finishes the batch in hand and gives up the partitions, so that others take over at once.
func (a *App) Stop(ctx context.Context) error { return a.group.Stop(ctx) }

// Checks are the dependencies of /readyz. Without Redis partitions are kept and runs dispatched without leases; without
// the store messages wait in the log.
func (a *App) Checks() []daemon.Check {
	return []daemon.Check{
		{Name: "nats", Ready: a.backends.Bus.Ready},
		{Name: "redis", Ready: a.backends.Leases.Ready, Optional: true},
		{Name: "postgres", Ready: a.backends.Store.Ready, Optional: true},
	}
}
