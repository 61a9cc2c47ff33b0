package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
)

const (
	// queueSize bounds the admissions that wait to be rung; more are left to the sweeper.
	queueSize = 256
	// batchSize bounds the doorbells of one round trip.
	batchSize = 1024

	reserveTimeout = time.Second
	publishTimeout = 5 * time.Second
	// reserveRest is how long Redis is left alone after it did not answer: runs then go out without a reservation.
	reserveRest = time.Second
)

// Reservations are the leases that a router takes.
type Reservations interface {
	Reserve(ctx context.Context, leases []lease.Lease) ([]lease.Grant, error)
}

// Publisher stores doorbells and sends signals.
type Publisher interface {
	PublishAll(ctx context.Context, msgs []bus.Msg) []error
	Notify(ctx context.Context, m bus.Msg) error
}

// Deps of a Dispatcher.
type Deps struct {
	RouterID string
	// MaxRunning are the limits of tenants that have one; without any, Sessions is not asked.
	MaxRunning map[string]int
	Sessions   Sessions
	Leases     Reservations
	Bus        Publisher
	Logger     *slog.Logger
	Tracer     trace.Tracer
	Meter      metric.Meter
}

// Dispatcher rings doorbells off the path of admission. It is a daemon.Component and safe for concurrent use.
type Dispatcher struct {
	Deps
	loops   daemon.Loops
	queue   chan job
	tenants *tenants
	// restUntil belongs to the loop.
	restUntil time.Time

	refused metric.Int64Counter
	lost    metric.Int64Counter
}

// job is what one admission made.
type job struct {
	runs       []Run
	deliveries []Delivery
	letters    []Letter
}

func (j *job) size() int { return len(j.runs) + len(j.deliveries) + len(j.letters) }

// New returns a dispatcher that rings once it is started.
func New(deps Deps) (*Dispatcher, error) {
	d := &Dispatcher{Deps: deps, queue: make(chan job, queueSize), tenants: newTenants(deps.MaxRunning)}
	var err error
	if d.refused, err = deps.Meter.Int64Counter("hermes_dispatch_refused_total",
		metric.WithDescription("Runs that were not dispatched because somebody holds their session's lease.")); err != nil {
		return nil, fmt.Errorf("dispatch metrics: %w", err)
	}
	if d.lost, err = deps.Meter.Int64Counter("hermes_doorbells_lost_total",
		metric.WithDescription("Doorbells that were not published; the sweeper rings again.")); err != nil {
		return nil, fmt.Errorf("dispatch metrics: %w", err)
	}
	return d, nil
}

// Start begins to ring.
func (d *Dispatcher) Start(ctx context.Context) error {
	d.loops.Go(ctx, d.run)
	if len(d.MaxRunning) > 0 {
		d.loops.Go(ctx, d.count)
	}
	return nil
}

// Stop rings what is queued and ends.
func (d *Dispatcher) Stop(ctx context.Context) error { return d.loops.Stop(ctx) }

// Ring reserves the sessions of runs and publishes all doorbells, later and without waiting. Runs whose session is held
// are left alone.
func (d *Dispatcher) Ring(ctx context.Context, runs []Run, deliveries []Delivery) {
	d.enqueue(ctx, job{runs: runs, deliveries: deliveries})
}

// Bury tells operators of dead letters, later and without waiting.
func (d *Dispatcher) Bury(ctx context.Context, letters []Letter) {
	d.enqueue(ctx, job{letters: letters})
}

func (d *Dispatcher) enqueue(ctx context.Context, j job) {
	if j.size() == 0 {
		return
	}
	select {
	case d.queue <- j:
	default:
		d.countLost(ctx, j.size(), errQueueFull)
	}
}

// errQueueFull: the broker is slower than admission.
var errQueueFull = errors.New("dispatch queue is full")

// Publish publishes doorbells now, without reservations.
func (d *Dispatcher) Publish(ctx context.Context, runs []Run, deliveries []Delivery) {
	d.publish(ctx, job{runs: d.tenants.turns(runs), deliveries: deliveries})
}

func (d *Dispatcher) publish(ctx context.Context, j job) {
	msgs, spans := d.messages(ctx, j)
	if len(msgs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	lost, last := 0, error(nil)
	for i, err := range d.Bus.PublishAll(ctx, msgs) {
		if spans[i] != nil {
			telemetry.EndSpan(spans[i], err)
		}
		if err != nil {
			lost, last = lost+1, err
		}
	}
	d.countLost(ctx, lost, last)
}

func (d *Dispatcher) run(ctx context.Context) {
	for {
		select {
		case j := <-d.queue:
			d.dispatch(ctx, d.collect(j))
		case <-ctx.Done():
			d.drain(context.WithoutCancel(ctx)) // what was admitted before the stop is still rung
			return
		}
	}
}

func (d *Dispatcher) drain(ctx context.Context) {
	for {
		select {
		case j := <-d.queue:
			d.dispatch(ctx, d.collect(j))
		default:
			return
		}
	}
}

// collect takes what queued up during the last round trip, without waiting.
func (d *Dispatcher) collect(j job) job {
	for j.size() < batchSize {
		select {
		case more := <-d.queue:
			j.runs = append(j.runs, more.runs...)
			j.deliveries = append(j.deliveries, more.deliveries...)
			j.letters = append(j.letters, more.letters...)
		default:
			return j
		}
	}
	return j
}

func (d *Dispatcher) dispatch(ctx context.Context, j job) {
	ctx = context.WithoutCancel(ctx) // a stop lets the batch in hand finish; both calls have a timeout
	j.runs = d.reserve(ctx, d.tenants.turns(j.runs))
	d.publish(ctx, j)
}

// reserve returns the runs that may be dispatched: all of them if Redis does not answer.
func (d *Dispatcher) reserve(ctx context.Context, runs []Run) []Run {
	if len(runs) == 0 || time.Now().Before(d.restUntil) {
		return runs
	}
	leases := make([]lease.Lease, len(runs))
	for i, r := range runs {
		leases[i] = lease.Lease{SKey: r.SKey, Gen: r.Gen, RunID: r.RunID.String(), Holder: lease.RouterHolder(d.RouterID)}
	}
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	grants, err := d.Leases.Reserve(ctx, leases)
	if err != nil {
		d.restUntil = time.Now().Add(reserveRest)
		d.Logger.WarnContext(ctx, "dispatching without leases", "runs", len(runs), "err", err)
		return runs
	}
	free := make([]Run, 0, len(runs))
	for i, g := range grants {
		if g.OK {
			free = append(free, runs[i])
		}
	}
	if refused := len(runs) - len(free); refused > 0 {
		d.refused.Add(ctx, int64(refused))
	}
	return free
}

// messages encodes doorbells and starts the producer spans of those that belong to a trace; other spans are nil.
func (d *Dispatcher) messages(ctx context.Context, j job) ([]bus.Msg, []trace.Span) {
	msgs := make([]bus.Msg, 0, j.size())
	spans := make([]trace.Span, 0, cap(msgs))
	add := func(b doorbell, err error) {
		if err != nil {
			d.countLost(ctx, 1, err)
			return
		}
		spans = append(spans, d.startSpan(ctx, &b))
		msgs = append(msgs, b.Msg)
	}
	for _, r := range j.runs {
		add(r.doorbell())
	}
	for _, r := range j.deliveries {
		add(r.doorbell())
	}
	for _, l := range j.letters {
		add(l.doorbell())
	}
	return msgs, spans
}

func (d *Dispatcher) startSpan(ctx context.Context, b *doorbell) trace.Span {
	if b.traceparent == "" {
		return nil
	}
	_, span := telemetry.StartPublish(event.WithTraceparent(ctx, b.traceparent), d.Tracer, b.template, &b.Msg)
	return span
}

func (d *Dispatcher) countLost(ctx context.Context, n int, err error) {
	if n == 0 {
		return
	}
	d.lost.Add(ctx, int64(n))
	d.Logger.WarnContext(ctx, "doorbells not published", "count", n, "err", err)
}
