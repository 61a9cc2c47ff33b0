package slot

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
	"github.com/hermes-runtime/hermes/services/worker/internal/stream"
)

// Config says what the worker takes.
type Config struct {
	WorkerID string
	// Pools are the run classes that it serves, Slots how many runs it holds at once.
	Pools []string
	Slots int
	// DrainSoft and DrainHard are shares of the time to stop, see Puller.Stop; 0: the defaults.
	DrainSoft, DrainHard float64
	// Grace is the time to stop of a drain that an operator asks for; 0: runs leave only at their step boundaries.
	Grace time.Duration
}

// Store is the part of the store that slots use.
type Store interface {
	Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claimed, error)
	Heartbeat(ctx context.Context, w store.WorkerBeat) error
	reclaimStore
}

// Bus is the part of the bus that slots use.
type Bus interface {
	bus.Publisher
	bus.Notifier
	bus.WorkQueues
}

// Held is a run in hand.
type Held struct {
	store.Claimed
	Handle *control.Handle
	Stream *stream.Stream
}

// Ended is what a run leaves to its slot: the run that is queued now, uuid.Nil if there is none or if it is not known.
type Ended struct {
	NextRun uuid.UUID
	NextGen int64
	// Traceparent belongs to the next run.
	Traceparent string
	// HandedOver: the next run is this one, and this worker must not go on with it.
	HandedOver bool
}

// Runner works on claimed runs.
type Runner interface {
	// Run returns when the run has ended or is lost, and writes nothing after that. It does not panic.
	Run(held Held) Ended
	// Limit is the time after which a run of a profile may be taken over, whatever it does.
	Limit(profile string) time.Duration
}

// Deps are what code supplies.
type Deps struct {
	Bus     Bus
	Leases  lease.Sessions
	Store   Store
	Control *control.Listener
	Streams *stream.Hub
	Runner  Runner
	Metrics *Metrics
	Tracer  trace.Tracer
	Logger  *slog.Logger
}

// Puller pulls runs into slots. It is a daemon.Component; what runs need (committer, listener, hub) must outlive it.
type Puller struct {
	Deps
	cfg     Config
	boot    uuid.UUID
	room    *room
	keeper  *keeper
	claimer *claimer

	// pulls end first, then the runs, then the services that both need.
	pulls    daemon.Loops
	runs     sync.WaitGroup
	services daemon.Loops
	stage    atomic.Int32
	// drained has one element when a drain begins.
	drained chan struct{}
}

// New returns a puller.
func New(cfg Config, deps Deps) (*Puller, error) {
	if err := bus.CheckToken("worker id", cfg.WorkerID); err != nil {
		return nil, err
	}
	p := &Puller{
		Deps: deps, cfg: cfg, boot: uuid.New(), room: newRoom(cfg.Slots), claimer: newClaimer(deps.Store, deps.Control.Clock()),
		drained: make(chan struct{}, 1),
	}
	p.keeper = newKeeper(keeperDeps{
		leases: deps.Leases, store: deps.Store, metrics: deps.Metrics, logger: deps.Logger, clock: deps.Control.Clock(), newOwner: p.newOwner,
	})
	if err := deps.Metrics.observe(p.room); err != nil {
		return nil, err
	}
	return p, nil
}

// Start opens the work queues, reports the worker alive, listens to operators and begins to pull.
func (p *Puller) Start(ctx context.Context) error {
	workers := make([]bus.Worker, len(p.cfg.Pools))
	for i, pool := range p.cfg.Pools {
		var err error
		if workers[i], err = p.Bus.Work(ctx, bus.RunQueue(pool)); err != nil {
			return fmt.Errorf("open queue of pool %s: %w", pool, err)
		}
	}
	commands := make(chan bus.Msg, commandBuffer)
	sub, err := p.Bus.Listen(bus.WorkerSubject(p.cfg.WorkerID), commands)
	if err != nil {
		return fmt.Errorf("listen for commands: %w", err)
	}
	p.stage.Store(0)
	for _, loop := range []func(context.Context){
		p.claimer.run, p.keeper.serve, p.keeper.renewals, p.keeper.reclaims, p.beat,
		func(ctx context.Context) { p.obey(ctx, sub, commands) },
	} {
		p.services.Go(ctx, loop)
	}
	for i, pool := range p.cfg.Pools {
		p.pulls.Go(ctx, func(ctx context.Context) { p.pull(ctx, pool, workers[i]) })
	}
	return nil
}

const (
	fetchLimit = 256
	fetchWait  = 5 * time.Second
	errorPause = 500 * time.Millisecond
)

// pull fetches doorbells of one pool while slots are free.
func (p *Puller) pull(ctx context.Context, pool string, worker bus.Worker) {
	for ctx.Err() == nil {
		free, err := p.room.wait(ctx)
		if err != nil {
			return
		}
		works, err := worker.Fetch(ctx, min(free, fetchLimit), fetchWait)
		if err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "fetch runs", "pool", pool, "err", err)
			daemon.Sleep(ctx, errorPause)
		}
		p.admit(ctx, pool, works)
	}
}

// admit gives slots to doorbells. Those for which there is none any more, since pools share the slots, go back.
func (p *Puller) admit(ctx context.Context, pool string, works []bus.Work) {
	starts := p.decode(ctx, pool, works)
	if ctx.Err() != nil {
		p.giveBack(ctx, starts)
		return
	}
	n := p.room.take(len(starts))
	p.giveBack(ctx, starts[n:])
	p.begin(ctx, starts[:n])
}

// begin takes the leases of starts in one pipeline and serves those that are granted.
func (p *Puller) begin(ctx context.Context, starts []*start) {
	if len(starts) == 0 {
		return
	}
	leases := make([]lease.Lease, len(starts))
	for i, s := range starts {
		leases[i] = leaseOf(s.fence)
	}
	for i, taken := range p.keeper.acquire(ctx, leases) {
		if !taken {
			p.Metrics.refuse(ctx, "lease")
			p.settle(ctx, starts[i], bus.Work.Ack)
			p.room.leave()
			continue
		}
		p.runs.Go(func() {
			defer p.room.leave()
			p.serve(ctx, starts[i])
		})
	}
}
