package admission

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/cancel"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// Log is where accepted messages are read, and published again if they belong to another session.
type Log interface {
	bus.Log
	bus.Events
	OpenKV(ctx context.Context, bucket string) (bus.KV, error)
	Publish(ctx context.Context, m bus.Msg) (bus.Ack, error)
	EnsureStreams(ctx context.Context) error
}

// Store keeps the inbox, and tells what answers and edits depend on.
type Store interface {
	store.Inbox
	inbox.Reader
	Session(ctx context.Context, skey string) (store.Session, error)
	Run(ctx context.Context, id uuid.UUID) (store.Run, error)
	FindInbox(ctx context.Context, skey, uid string) (store.InboxRow, error)
	KnownItems(ctx context.Context, skey string, uids []string) ([]string, error)
	RunToolCalls(ctx context.Context, id uuid.UUID) ([]store.ToolCall, error)
	Conversations(ctx context.Context, skey string, limit int) ([]store.Conversation, error)
	Workers(ctx context.Context) ([]store.WorkerState, error)
	ResolveAliases(ctx context.Context, addresses []store.Address) ([]string, error)
}

// Bells tell others what has been committed, without waiting.
type Bells interface {
	Ring(ctx context.Context, runs []dispatch.Run, deliveries []dispatch.Delivery)
	Signal(ctx context.Context, s dispatch.Signal)
	Bury(ctx context.Context, letters []dispatch.Letter)
}

// Canceller ends runs that were stopped before they began, without waiting.
type Canceller interface {
	Cancel(ctx context.Context, s cancel.Stop)
}

// Events take lifecycle events, without waiting.
type Events interface {
	Emit(ev event.Lifecycle)
}

// Deps of an Admitter.
type Deps struct {
	Log       Log
	Store     Store
	Bells     Bells
	Canceller Canceller
	Events    Events
	// Busy is what a profile does about messages that come while a conversation is busy.
	Busy func(profile string) Busy
	// KeyOptions are the session key options of a profile.
	KeyOptions func(profile string) session.Options
	Logger     *slog.Logger
	Tracer     trace.Tracer
	Meter      metric.Meter
}

// queueRoom holds entries of all partitions that wait for the loop.
const queueRoom = maxBatch

// Admitter reads partitions and admits their messages. It is a daemon.Component.
type Admitter struct {
	Deps
	metrics *metrics
	loops   daemon.Loops
	queue   chan delivery
	// turn is held while a batch is on its way into the store.
	turn chan struct{}
	// backlog belongs to the loop.
	backlog *backlog
	// carry is what the last batch left over; it belongs to the loop.
	carry []*candidate
	now   func() time.Time

	mu      sync.Mutex
	stopped bool
	readers map[int]*reader
	reading sync.WaitGroup
	kv      bus.KV
}

// New returns an admitter that reads nothing until it owns partitions, and admits nothing until it is started.
func New(deps Deps) (*Admitter, error) {
	a := &Admitter{
		Deps:    deps,
		queue:   make(chan delivery, queueRoom),
		turn:    make(chan struct{}, 1),
		readers: map[int]*reader{},
		backlog: newBacklog(),
		now:     time.Now,
	}
	var err error
	a.metrics, err = newMetrics(deps.Meter, a)
	return a, err
}

// Start begins to admit.
func (a *Admitter) Start(ctx context.Context) error {
	a.loops.Go(ctx, a.run)
	a.loops.Go(ctx, a.measure)
	a.loops.Go(ctx, a.copyOffsets)
	return nil
}

// Stop stops all readers, finishes the batch in hand and ends. A batch that the store does not take at once is left:
// the log still has it.
func (a *Admitter) Stop(ctx context.Context) error {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.Own(ctx, nil)
	err := a.loops.Stop(ctx)
	a.reading.Wait() // readers end at once
	a.metrics.unregister()
	return err
}

// Own implements partition.Owner.
func (a *Admitter) Own(ctx context.Context, partitions []int) {
	if a.replace(ctx, partitions) {
		// An error means that ctx ended before the batch in hand was stored. The compare-and-swap of the offset covers it.
		_ = a.idle(ctx)
	}
}

// replace starts and stops readers; dropped: some were stopped.
func (a *Admitter) replace(ctx context.Context, partitions []int) (dropped bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := make(map[int]*reader, len(partitions))
	for _, p := range partitions {
		if r := a.readers[p]; r != nil {
			next[p] = r
			delete(a.readers, p)
		} else if !a.stopped {
			next[p] = a.startReader(ctx, p)
		}
	}
	for _, r := range a.readers {
		r.stop()
		dropped = true
	}
	a.readers = next
	return dropped
}

func (a *Admitter) startReader(ctx context.Context, partition int) *reader {
	// A reader lives until it is stopped, not until the call that started it ends.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &reader{Admitter: a, partition: partition, stop: stop}
	a.reading.Go(func() { r.run(ctx) })
	return r
}

// idle waits until no batch is on its way into the store that was begun before the call.
func (a *Admitter) idle(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		<-a.turn
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open returns the attachments of the partitions that are being read.
func (a *Admitter) open() []*attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	var open []*attachment
	for _, r := range a.readers {
		if at := r.current.Load(); at != nil {
			open = append(open, at)
		}
	}
	return open
}

func (a *Admitter) owned() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(len(a.readers))
}

// held counts the partitions that wait for an operator's choice.
func (a *Admitter) held() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := int64(0)
	for _, r := range a.readers {
		if r.held.Load() {
			n++
		}
	}
	return n
}

// measure keeps the lag of every partition current.
func (a *Admitter) measure(ctx context.Context) {
	for daemon.Sleep(ctx, measureEvery) {
		a.measureLag(ctx)
	}
}

const (
	measureEvery   = 2 * time.Second
	measureTimeout = 5 * time.Second
)

func (a *Admitter) measureLag(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	last := map[string]int64{}
	lags := map[int]int64{}
	for _, at := range a.open() {
		if _, known := last[at.stream]; !known {
			info, err := a.Log.LogInfo(ctx, at.partition)
			if err != nil {
				return // the readers report a broker that is down; the last values stay
			}
			last[at.stream] = int64(info.LastSeq)
		}
		lags[at.partition] = at.lag(last[at.stream])
	}
	a.metrics.setLags(lags)
}
