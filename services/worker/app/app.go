package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
	"github.com/hermes-runtime/hermes/services/worker/internal/checkpoint"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
	"github.com/hermes-runtime/hermes/services/worker/internal/runtime"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
	"github.com/hermes-runtime/hermes/services/worker/internal/stream"
)

const scope = "github.com/hermes-runtime/hermes/services/worker"

// Deps are what code supplies besides the backends.
type Deps struct {
	// Models by provider name; every provider of a profile is needed.
	Models map[string]llm.Model
	// Executor runs tools; nil: nobody has tools.
	Executor tool.Executor
	// DrainSoft and DrainHard are the shares of the time to stop after which runs are handed over wherever they are, and
	// are abandoned; 0: 60 % and 80 %.
	DrainSoft, DrainHard float64
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time
}

// App is a worker. It is a daemon.Component and owns none of its backends.
type App struct {
	id       string
	backends backends.Backends
	slots    *slot.Puller
	group    daemon.Group
	parts    []daemon.Named
}

// New wires a worker.
func New(cfg config.Config, b backends.Backends, deps Deps) (*App, error) {
	id, err := workerID(cfg.Worker.ID)
	if err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	logger := b.Logger.With("worker_id", id)
	meter, tracer := b.Meters.Meter(scope), b.Traces.Tracer(scope)

	emitter := hook.NewEmitter(b.Bus, logger)
	signals := control.NewListener(b.Bus, b.Store, logger)
	streams := stream.NewHub(b.Bus, logger)
	committer, err := checkpoint.New(b.Store, meter)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	taker, err := takeover.New(takeover.Deps{
		Store: b.Store, Bus: b.Bus, Events: emitter, StallLimit: cfg.Engine.StallLimit, AttemptLimit: cfg.Engine.AttemptLimit,
		Logger: logger, Meter: meter,
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	runs, err := runtime.New(cfg, runtime.Deps{
		Models: deps.Models, Executor: deps.Executor, Store: b.Store, Committer: committer, Objects: b.Bus,
		Takeover: taker, Bus: b.Bus, Events: emitter,
		Tracer: tracer, Meter: meter, Logger: logger, Now: deps.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	metrics, err := slot.NewMetrics(meter)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	slots, err := slot.New(slot.Config{
		WorkerID: id, Pools: cfg.Worker.Pools, Slots: cfg.Worker.Slots, DrainSoft: deps.DrainSoft, DrainHard: deps.DrainHard,
		Grace: cfg.Worker.Grace,
	}, slot.Deps{
		Bus: b.Bus, Leases: b.Leases, Store: b.Store, Control: signals, Streams: streams, Runner: runs,
		Metrics: metrics, Tracer: tracer, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return &App{
		id: id, backends: b, slots: slots, group: daemon.Group{Logger: logger},
		parts: []daemon.Named{
			{Name: "events", Component: emitter},
			{Name: "committer", Component: committer},
			{Name: "control", Component: signals},
			{Name: "streams", Component: streams},
			{Name: "runtime", Component: runs},
			{Name: "slots", Component: slots},
		},
	}, nil
}

// workerID returns the configured name, or one that no other worker of this cluster has. It becomes part of subjects.
func workerID(configured string) (string, error) {
	if configured != "" {
		if err := bus.CheckToken("worker.id", configured); err != nil {
			return "", err
		}
		return configured, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker" // the suffix alone makes it unique
	}
	token := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(host))
	return token + "-" + strings.ToLower(rand.Text()[:6]), nil
}

// WorkerID is the name of this worker among all.
func (a *App) WorkerID() string { return a.id }

// Start returns when the worker pulls runs. It needs the broker; Redis and the store may come later.
func (a *App) Start(ctx context.Context) error {
	if err := a.backends.Bus.EnsureStreams(ctx); err != nil {
		return fmt.Errorf("worker: create streams: %w", err)
	}
	return a.group.Start(ctx, a.parts...)
}

// Stop gives back what is not begun and hands over the runs in hand, each at its next step boundary. After 60 % of the
// time until ctx ends they are handed over wherever they are, after 80 % abandoned, which leaves them to the sweeper; the
// rest is for what still has to be sent.
func (a *App) Stop(ctx context.Context) error { return a.group.Stop(ctx) }

// Checks are the dependencies of /readyz. Without Redis runs are claimed without leases; without the store nothing is
// claimed until it is back. A worker that an operator has drained is not ready.
func (a *App) Checks() []daemon.Check {
	return []daemon.Check{
		{Name: "slots", Ready: a.slots.Ready},
		{Name: "nats", Ready: a.backends.Bus.Ready},
		{Name: "postgres", Ready: a.backends.Store.Ready, Optional: true},
		{Name: "redis", Ready: a.backends.Leases.Ready, Optional: true},
	}
}
