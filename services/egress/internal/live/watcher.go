package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	"github.com/hermes-runtime/hermes/services/egress/internal/rate"
)

const (
	// hookName is shared: one process gets each event.
	hookName = "live"
	// stale events are of runs that began while no egress was there.
	stale = time.Minute
	// stopBuffer is how many requests to stop wait; their senders give up after two seconds anyway.
	stopBuffer = 1024
)

// DefaultMax is how many runs one process shows at once.
const DefaultMax = 1024

// Bus is the part of the broker that a Watcher uses.
type Bus interface {
	bus.WorkQueues
	bus.Notifier
}

// Store is the part of the store that a Watcher uses.
type Store interface {
	Run(ctx context.Context, id uuid.UUID) (store.Run, error)
	Previews(ctx context.Context, skey string, runID uuid.UUID) (platformIDs []string, err error)
	NotePreview(ctx context.Context, skey string, runID uuid.UUID, platformID, egress string) error
}

// Deps are what a Watcher works with.
type Deps struct {
	Bus   Bus
	Store Store
	// Previews is nil without Redis: then there is typing only.
	Previews lease.Previews
	Gate     *rate.Gate
	// Senders by platform. Those that are neither channel.Typer nor channel.Previewer show nothing.
	Senders map[string]channel.Sender
	Logger  *slog.Logger
	Meter   metric.Meter
}

// Config of a Watcher.
type Config struct {
	// ID names the process, as for deliveries.
	ID string
	// Max bounds the runs that are shown at once; those beyond it are shown by nobody.
	Max int
}

// Watcher shows runs. It is a daemon.Component that runs once.
type Watcher struct {
	deps  Deps
	cfg   Config
	begun *hook.Subscriber
	stops chan bus.Msg
	sub   bus.Subscription
	loops daemon.Loops

	shows sync.WaitGroup
	// life is the context of the shows.
	life context.Context //nolint:containedctx // the life of the goroutines that this value owns
	end  context.CancelFunc

	mu sync.Mutex
	// runs are the shows by the run that they show.
	runs map[uuid.UUID]*show
}

// New returns a Watcher.
func New(cfg Config, deps Deps) (*Watcher, error) {
	w := &Watcher{deps: deps, cfg: cfg, stops: make(chan bus.Msg, stopBuffer), runs: map[uuid.UUID]*show{}}
	var err error
	w.begun, err = hook.NewSubscriber(
		hook.Subscription{Name: hookName, Types: []event.Type{event.RunStarted}, Observer: hook.ObserverFunc(w.begin)},
		hook.SubscriberDeps{Bus: deps.Bus, Logger: deps.Logger, Meter: deps.Meter})
	return w, err // says what it is about
}

// Start subscribes to the runs that begin, and to requests to stop.
func (w *Watcher) Start(ctx context.Context) error {
	var err error
	if w.sub, err = w.deps.Bus.Listen(bus.PreviewSubject(w.cfg.ID), w.stops); err != nil {
		return fmt.Errorf("listen for the end of previews: %w", err)
	}
	w.life, w.end = context.WithCancel(context.WithoutCancel(ctx))
	w.loops.Go(ctx, w.answer)
	return w.begun.Start(ctx) // says what it is about
}

// Stop ends all shows. It waits for requests that are on their way to a platform, a few seconds at most.
func (w *Watcher) Stop(ctx context.Context) error {
	if w.life == nil {
		return nil
	}
	unbounded := context.WithoutCancel(ctx) // they only wait for their context
	err := errors.Join(w.begun.Stop(unbounded), w.loops.Stop(unbounded))
	w.end()
	w.shows.Wait()
	if closeErr := w.sub.Close(); closeErr != nil { // nobody reads it any more
		w.deps.Logger.DebugContext(ctx, "close subscription", "err", closeErr)
	}
	return err
}

// begin shows the run of an event, if there is something to show.
func (w *Watcher) begin(_ context.Context, ev *event.Lifecycle) error {
	runID, err := uuid.Parse(ev.RunID)
	if err != nil || time.Since(ev.At) > stale {
		return nil
	}
	s := newShow(w, ev, runID)
	if s == nil || !w.add(s) {
		return nil
	}
	w.shows.Go(func() {
		defer w.remove(s)
		s.run(w.life)
	})
	return nil
}

// add reports whether s is to be run: its run is not shown yet, and there is room.
func (w *Watcher) add(s *show) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[s.runID] != nil {
		return false
	}
	if len(w.runs) >= w.cfg.Max {
		w.deps.Logger.Debug("too many runs to show", "skey", s.skey, "run_id", s.runID.String())
		return false
	}
	w.runs[s.runID] = s
	return true
}

func (w *Watcher) remove(s *show) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, s.runID)
}

// alone reports whether s is the only show of its session here.
func (w *Watcher) alone(s *show) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.runs {
		if other != s && other.skey == s.skey {
			return false
		}
	}
	return true
}

func (w *Watcher) find(id string) *show {
	runID, err := uuid.Parse(id)
	if err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[runID]
}

// answer ends the shows that others ask to end. The show itself answers, once nothing of it is on its way.
func (w *Watcher) answer(ctx context.Context) {
	for {
		select {
		case m := <-w.stops:
			var stop deliveryv1.PreviewStop
			if err := proto.Unmarshal(m.Data, &stop); err != nil {
				w.deps.Logger.DebugContext(ctx, "request not readable", "err", err)
				continue
			}
			if s := w.find(stop.GetRunId()); s == nil || !s.stop(m.Reply) {
				w.stopped(ctx, m.Reply, "")
			}
		case <-ctx.Done():
			return
		}
	}
}

// stopped tells who asked that nothing is shown any more.
func (w *Watcher) stopped(ctx context.Context, reply, platformID string) {
	if reply == "" {
		return
	}
	data, err := proto.Marshal(&deliveryv1.PreviewStopped{PlatformId: platformID})
	if err == nil {
		err = w.deps.Bus.Notify(ctx, bus.Msg{Subject: reply, Data: data})
	}
	if err != nil { // it gives up after two seconds
		w.deps.Logger.DebugContext(ctx, "end of preview not told", "err", err)
	}
}
