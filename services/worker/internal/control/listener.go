// Package control brings stop signals and fences to the runs in hand, and says how long they may go on.
//
// A signal is a wake-up over a bus that may lose it: what it tells is also in the store, where the next checkpoint of
// the run finds it, and for runs inside a long call one question for all of them, every 2 s. All subscriptions of a
// worker share one channel and one goroutine. The same question confirms the runs, which keeps them going without Redis,
// and finds those whose claim was lost with the store, see [Handle.Check].
package control

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
)

const buffer = 4096

// Store says which runs are stopped or lost.
type Store interface {
	Stops(ctx context.Context, fences []store.Fence) ([]store.StopState, error)
}

// Listener passes signals to handles. It is a daemon.Component; it must outlive the runs.
type Listener struct {
	bus      bus.Notifier
	store    Store
	logger   *slog.Logger
	messages chan bus.Msg
	loops    daemon.Loops

	mu sync.RWMutex
	// runs by skey. A session has one run in hand, but for moments in which a newer generation is being claimed while
	// the older one does not know yet that it is fenced.
	runs map[string][]*Handle

	clock boottime.Clock
	// outage is shared with the runs.
	outage *outage
}

// NewListener returns a listener.
func NewListener(b bus.Notifier, s Store, logger *slog.Logger) *Listener {
	return NewListenerWithClock(b, s, logger, boottime.Now)
}

// NewListenerWithClock is NewListener for tests that let deadlines pass.
func NewListenerWithClock(b bus.Notifier, s Store, logger *slog.Logger, clock boottime.Clock) *Listener {
	return &Listener{
		bus: b, store: s, logger: logger, messages: make(chan bus.Msg, buffer), runs: map[string][]*Handle{},
		clock: clock, outage: new(outage),
	}
}

// Start begins to pass signals on.
func (l *Listener) Start(ctx context.Context) error {
	l.loops.Go(ctx, l.run)
	l.loops.Go(ctx, l.poll)
	return nil
}

// Stop ends both loops.
func (l *Listener) Stop(ctx context.Context) error { return l.loops.Stop(ctx) }

// Listen subscribes to the signals of a session. Signals sent after it has returned reach the handles of the session.
func (l *Listener) Listen(skey string) (bus.Subscription, error) {
	sub, err := l.bus.Listen(bus.ControlSubject(skey), l.messages)
	if err != nil {
		return nil, fmt.Errorf("listen for signals: %w", err)
	}
	return sub, nil
}

// Clock is that of the deadlines.
func (l *Listener) Clock() boottime.Clock { return l.clock }

// Open returns the handle of a run that is about to be claimed, and makes it reachable until Remove. Close it then.
func (l *Listener) Open(ctx context.Context, fence store.Fence) *Handle {
	h := NewHandleWithClock(ctx, fence, l.clock)
	l.Add(h)
	return h
}

// Add makes a run reachable; call it before the claim, and before the handle is used by others.
func (l *Listener) Add(h *Handle) {
	h.deadline.outage = l.outage
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[h.SKey] = append(l.runs[h.SKey], h)
}

// Remove takes a run out.
func (l *Listener) Remove(h *Handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := slices.DeleteFunc(l.runs[h.SKey], func(o *Handle) bool { return o == h })
	if len(left) == 0 {
		delete(l.runs, h.SKey)
		return
	}
	l.runs[h.SKey] = left
}

// All returns the runs in hand.
func (l *Listener) All() []*Handle {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var all []*Handle
	for _, hs := range l.runs {
		all = append(all, hs...)
	}
	return all
}

func (l *Listener) run(ctx context.Context) {
	for {
		select {
		case m := <-l.messages:
			l.handle(ctx, m)
		case <-ctx.Done():
			return
		}
	}
}

func (l *Listener) handle(ctx context.Context, m bus.Msg) {
	var c runv1.Control
	if err := proto.Unmarshal(m.Data, &c); err != nil {
		l.logger.WarnContext(ctx, "control message unreadable", "err", err)
		return
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, h := range l.runs[bus.SKeyOf(m.Subject)] {
		h.signal(&c)
	}
}

// signal acts on a message that was meant for this run. Signals of a lower generation are late; a message without
// generation counts for every one.
func (h *Handle) signal(c *runv1.Control) {
	if h.late(c.GetGen()) {
		return
	}
	switch c.GetKind() {
	case runv1.ControlKind_CONTROL_KIND_STOP:
		// A stop names the run that was current when it was admitted; it never reaches another one.
		if c.GetRunId() == h.RunID.String() {
			h.Stop()
		}
	case runv1.ControlKind_CONTROL_KIND_FENCED:
		if c.GetGen() > h.Fence().Gen {
			h.Lose()
		}
	case runv1.ControlKind_CONTROL_KIND_STEER:
		h.add(c.GetSeq())
	default: // wake-ups for rows that a later run takes
	}
}
