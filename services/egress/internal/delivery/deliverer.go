package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/egress/internal/rate"
)

// Bus is the part of the broker that a Deliverer uses.
type Bus interface {
	bus.Publisher
	bus.WorkQueues
	Request(ctx context.Context, m bus.Msg) (bus.Msg, error)
}

// Chats is what is known of a session's chat.
type Chats interface {
	Session(ctx context.Context, skey string) (store.Session, error)
	LearnAlias(ctx context.Context, a store.Address, older string) (canonical string, err error)
}

// Previews say which process shows a run.
type Previews interface {
	PreviewHolder(ctx context.Context, skey string) (egressID string, err error)
}

// Emitter tells observers what happened; it never blocks.
type Emitter interface {
	Emit(ev event.Lifecycle)
}

// Deps are what a Deliverer works with.
type Deps struct {
	Bus    Bus
	Outbox store.Outbox
	Chats  Chats
	// Previews is nil without Redis: nobody shows runs then.
	Previews Previews
	Limits   ratelimit.Limiter
	Emitter  Emitter
	Logger   *slog.Logger
	Tracer   trace.Tracer
	Meter    metric.Meter
	// Senders by platform. Rows of other platforms are left to others.
	Senders map[string]channel.Sender
}

// Config of a Deliverer.
type Config struct {
	// ID names the process in claims.
	ID string
	// SendTimeout bounds one send.
	SendTimeout time.Duration
	// PreviewStop is how long the final text waits for the process that shows the run. Beyond it an edit may come late.
	PreviewStop time.Duration
	// Parallel is how many rows of one platform are in hand at most.
	Parallel int
}

// Values that suit one process.
const (
	DefaultParallel    = 256
	DefaultPreviewStop = 2 * time.Second
)

// errStopped ends sends that outlast the drain.
var errStopped = errors.New("egress is stopping")

// Deliverer delivers the rows of its platforms. It is a daemon.Component that runs once.
type Deliverer struct {
	deps    Deps
	cfg     Config
	metrics metrics
	marker  *marker
	lanes   map[string]*lane

	gate     *rate.Gate
	accounts accounts
	places   *places

	fetchers daemon.Loops
	marking  daemon.Loops
	// jobs are rows in hand; work is the context of their sends.
	jobs       sync.WaitGroup
	work       context.Context //nolint:containedctx // the life of the goroutines that this value owns
	cancelWork context.CancelCauseFunc
}

// lane holds what belongs to one platform.
type lane struct {
	sender channel.Sender
	// slots has a token per row that may still be taken in hand.
	slots chan struct{}
}

// New returns a Deliverer.
func New(cfg Config, deps Deps) (*Deliverer, error) {
	m, err := newMetrics(deps.Meter)
	if err != nil {
		return nil, err
	}
	d := &Deliverer{
		deps: deps, cfg: cfg, metrics: m, lanes: map[string]*lane{},
		gate: rate.NewGate(deps.Limits, deps.Logger), accounts: accounts{paused: map[account]*pausedAccount{}}, places: newPlaces(),
	}
	d.marker = newMarker(deps.Outbox, deps.Logger, d.settled)
	for platform, sender := range deps.Senders {
		l := &lane{sender: sender, slots: make(chan struct{}, cfg.Parallel)}
		for range cfg.Parallel {
			l.slots <- struct{}{}
		}
		d.lanes[platform] = l
	}
	return d, nil
}

// Start opens the work queue of each platform and begins to deliver.
func (d *Deliverer) Start(ctx context.Context) error {
	workers := map[string]bus.Worker{}
	for platform := range d.lanes {
		w, err := d.deps.Bus.Work(ctx, bus.OutQueue(platform))
		if err != nil {
			return fmt.Errorf("open queue of %s: %w", platform, err)
		}
		workers[platform] = w
	}
	d.work, d.cancelWork = context.WithCancelCause(context.WithoutCancel(ctx))
	d.marking.Go(ctx, d.marker.run)
	for platform, w := range workers {
		d.fetchers.Go(ctx, func(ctx context.Context) { d.fetch(ctx, d.lanes[platform], w) })
	}
	return nil
}

// Stop takes no new rows, finishes those in hand until ctx ends, and cuts what is left: those claims end by themselves.
func (d *Deliverer) Stop(ctx context.Context) error {
	if d.work == nil {
		return nil
	}
	err := d.fetchers.Stop(ctx)
	if err != nil { // one waits for the store: cut it short
		d.cancelWork(errStopped)
		err = errors.Join(err, d.fetchers.Stop(context.WithoutCancel(ctx)))
	}
	idle := make(chan struct{})
	go func() {
		d.jobs.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		err = errors.Join(err, context.Cause(ctx))
	}
	d.cancelWork(errStopped)
	// The marker has nothing left to do, or gives up at once.
	err = errors.Join(err, d.marking.Stop(context.WithoutCancel(ctx)))
	<-idle
	return err
}

// stopping: rows that wait behind a settled one are left to others.
func (d *Deliverer) stopping() bool { return d.work.Err() != nil }

// claimant is a fresh name for the owner of a claim.
func (d *Deliverer) claimant() string { return d.cfg.ID + "/" + uuid.NewString() }
