package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
)

const (
	// maxInHand bounds the events of one subscription that a process holds. The others wait with the broker.
	maxInHand   = 1024
	fetchBatch  = 256
	fetchWait   = 5 * time.Second
	outagePause = time.Second
	// The pause after a failed try doubles.
	firstPause, maxPause = time.Second, time.Minute
)

// SubscriberDeps are what a Subscriber works with.
type SubscriberDeps struct {
	Bus    bus.WorkQueues
	Logger *slog.Logger
	Meter  metric.Meter
}

// Subscriber brings the events of one subscription to its observer, at least once each and those of a session in order.
//
//	EVT ──► fetch ──► lane of the session ──► try ──► acknowledged
//	                                           │ ▲
//	                                  fails    ▼ │  up to Retries times, then it is given up
//	                                          pause
//
// An observer that hangs or fails holds up its own sessions, and the publishers of events never.
//
// The order holds as long as one process runs the subscription. It is a daemon.Component that runs once.
type Subscriber struct {
	sub        Subscription
	deps       SubscriberDeps
	deliveries metric.Int64Counter
	queue      bus.Worker
	loops      daemon.Loops
	// slots holds one token for each try that may be under way.
	slots chan struct{}
	// freed says that there may be room for more.
	freed chan struct{}

	mu sync.Mutex
	// held are the events in hand by their identity, lanes those of a session in order: the first one is being tried. A
	// lane exists, empty for moments, as long as a goroutine serves it.
	held  map[string]*heldEvent
	lanes map[string][]*heldEvent
}

// heldEvent is an event in hand.
type heldEvent struct {
	id string
	ev *event.Lifecycle
	// work is its newest delivery: the broker repeats what takes long.
	work bus.Work
}

// NewSubscriber returns a Subscriber.
func NewSubscriber(sub Subscription, deps SubscriberDeps) (*Subscriber, error) {
	deliveries, err := deps.Meter.Int64Counter("hermes_hook_deliveries_total",
		metric.WithDescription("Tries to bring a lifecycle event to a hook, by hook and outcome: delivered, failed, given_up."))
	if err != nil {
		return nil, fmt.Errorf("hook metrics: %w", err)
	}
	sub = sub.withDefaults()
	return &Subscriber{
		sub: sub, deps: deps, deliveries: deliveries, slots: make(chan struct{}, sub.Parallel), freed: make(chan struct{}, 1),
		held: map[string]*heldEvent{}, lanes: map[string][]*heldEvent{},
	}, nil
}

// Start subscribes and delivers until Stop.
func (s *Subscriber) Start(ctx context.Context) error {
	if err := s.Open(ctx); err != nil {
		return err
	}
	s.loops.Go(ctx, s.Run)
	return nil
}

// Stop gives back what is in hand: it comes again.
func (s *Subscriber) Stop(ctx context.Context) error { return s.loops.Stop(ctx) }

// Open subscribes: events that are published from now on are kept for the subscription, whether or not it runs.
func (s *Subscriber) Open(ctx context.Context) error {
	queue, err := s.deps.Bus.Work(ctx, bus.EventQueue(s.sub.Name, s.sub.filter()))
	if err != nil {
		return fmt.Errorf("subscribe %s to events: %w", s.sub.Name, err)
	}
	s.queue = queue
	return nil
}

// Run delivers until ctx ends, and returns when nothing is in hand any more. It may be called again.
func (s *Subscriber) Run(ctx context.Context) {
	var lanes sync.WaitGroup
	defer lanes.Wait()
	down := false
	for s.awaitRoom(ctx) {
		works, err := s.queue.Fetch(ctx, min(s.room(), fetchBatch), fetchWait)
		if err != nil && !down && ctx.Err() == nil {
			s.deps.Logger.WarnContext(ctx, "events not fetched", "hook", s.sub.Name, "err", err)
		}
		if down = err != nil; down {
			daemon.Sleep(ctx, outagePause)
		}
		for _, w := range works {
			if h := s.take(ctx, w); h != nil {
				lanes.Go(func() { s.serve(ctx, h.ev.SKey) })
			}
		}
	}
}

// awaitRoom reports whether there is room for more; false when ctx has ended.
func (s *Subscriber) awaitRoom(ctx context.Context) bool {
	for s.room() <= 0 && ctx.Err() == nil {
		select {
		case <-s.freed:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

func (s *Subscriber) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maxInHand - len(s.held)
}

// take puts an event into the lane of its session. It returns the event if the lane has to be served.
func (s *Subscriber) take(ctx context.Context, w bus.Work) *heldEvent {
	msg := w.Msg()
	ev, err := event.DecodeLifecycle(msg.Data)
	if err != nil {
		s.deps.Logger.ErrorContext(ctx, "event not readable", "hook", s.sub.Name, "err", err)
	}
	if err != nil || !s.sub.wants(ev) {
		s.ack(ctx, w)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := msg.Subject + " " + EventID(ev)
	if h := s.held[id]; h != nil {
		h.work = w
		return nil
	}
	h := &heldEvent{id: id, ev: ev, work: w}
	s.held[id] = h
	lane, served := s.lanes[ev.SKey]
	s.lanes[ev.SKey] = append(lane, h)
	if served {
		return nil
	}
	return h
}

// serve delivers the events of a session until there are none, or gives them back when ctx ends.
func (s *Subscriber) serve(ctx context.Context, skey string) {
	for {
		h := s.first(skey)
		if h == nil {
			return
		}
		done := s.deliver(ctx, h.ev)
		w := s.drop(h)
		if done {
			s.ack(ctx, w)
			continue
		}
		if err := w.Nak(); err != nil { // it comes again all the same, later
			s.deps.Logger.DebugContext(ctx, "event not given back", "hook", s.sub.Name, "err", err)
		}
	}
}

func (s *Subscriber) first(skey string) *heldEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lanes[skey]) == 0 {
		delete(s.lanes, skey)
		return nil
	}
	return s.lanes[skey][0]
}

// drop takes the first event of its lane out of hand and returns its newest delivery.
func (s *Subscriber) drop(h *heldEvent) bus.Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, h.id)
	s.lanes[h.ev.SKey] = s.lanes[h.ev.SKey][1:]
	select {
	case s.freed <- struct{}{}:
	default: // it is known
	}
	return h.work
}

// deliver tries until the event is taken or given up; false: ctx has ended before that.
func (s *Subscriber) deliver(ctx context.Context, ev *event.Lifecycle) bool {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = firstPause, maxPause, 2
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, s.try(ctx, ev) },
		backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0), backoff.WithMaxTries(uint(s.sub.Retries)+1),
		backoff.WithNotify(func(err error, _ time.Duration) {
			s.count(ctx, "failed")
			s.deps.Logger.DebugContext(ctx, "event not delivered, it is tried again", "hook", s.sub.Name, "type", ev.Type, "err", err)
		}))
	switch {
	case err == nil:
		s.count(ctx, "delivered")
	case ctx.Err() != nil:
		return false
	default:
		s.count(ctx, "given_up")
		s.deps.Logger.WarnContext(ctx, "event given up", "hook", s.sub.Name, "type", ev.Type, "skey", ev.SKey, "run_id", ev.RunID, "err", err)
	}
	return true
}

// try waits for a slot and calls the observer once.
func (s *Subscriber) try(ctx context.Context, ev *event.Lifecycle) (err error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() {
		<-s.slots
		if problem := recover(); problem != nil { // of an observer in this process: it must not take the others with it
			err = backoff.Permanent(fmt.Errorf("observer panicked: %v", problem))
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, s.sub.Timeout, errTimeout)
	defer cancel()
	return s.sub.Observer.Observe(ctx, ev)
}

var errTimeout = errors.New("the hook did not answer in time")

func (s *Subscriber) count(ctx context.Context, outcome string) {
	s.deliveries.Add(ctx, 1, metric.WithAttributes(attribute.String("hook", s.sub.Name), attribute.String("outcome", outcome)))
}

func (s *Subscriber) ack(ctx context.Context, w bus.Work) {
	if err := w.Ack(); err != nil {
		s.deps.Logger.DebugContext(ctx, "event not acknowledged, it comes again", "hook", s.sub.Name, "err", err)
	}
}
