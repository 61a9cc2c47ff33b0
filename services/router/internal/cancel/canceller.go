package cancel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/internal/notice"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

const (
	// queueSize bounds the stops that wait; more are left to the workers.
	queueSize = 256
	// tryFor bounds how long an unavailable store is asked again, callTimeout one try.
	tryFor      = 30 * time.Second
	callTimeout = 5 * time.Second
)

// Stop is a stop whose run nobody had claimed when it was admitted.
type Stop struct {
	SKey  string
	RunID uuid.UUID
	// Seq is the row of the stop, Gen the session's generation after it.
	Seq, Gen int64
	// ReplyTo is where the stop is confirmed.
	ReplyTo     event.Address
	Traceparent string
}

// Store ends runs, and tells what they take.
type Store interface {
	inbox.Reader
	Session(ctx context.Context, skey string) (store.Session, error)
	StopQueued(ctx context.Context, s store.QueuedStop) (store.FinishResult, error)
	EndStopped(ctx context.Context, s store.QueuedStop) (store.FinishResult, error)
}

// Bells tell others, without waiting.
type Bells interface {
	Ring(ctx context.Context, runs []dispatch.Run, deliveries []dispatch.Delivery)
	Signal(ctx context.Context, s dispatch.Signal)
}

// Events take lifecycle events, without waiting.
type Events interface {
	Emit(ev event.Lifecycle)
}

// Deps of a Canceller.
type Deps struct {
	Store  Store
	Bells  Bells
	Events Events
	Logger *slog.Logger
}

// Canceller is a daemon.Component and safe for concurrent use.
type Canceller struct {
	Deps
	loops daemon.Loops
	queue chan Stop
}

// New returns a canceller that works once it is started.
func New(deps Deps) *Canceller {
	return &Canceller{Deps: deps, queue: make(chan Stop, queueSize)}
}

// Start begins to end runs.
func (c *Canceller) Start(ctx context.Context) error {
	c.loops.Go(ctx, c.run)
	return nil
}

// Stop tries what is queued once more and ends.
func (c *Canceller) Stop(ctx context.Context) error { return c.loops.Stop(ctx) }

// Cancel ends the run of s, later and without waiting. A run that is claimed meanwhile is signalled.
func (c *Canceller) Cancel(ctx context.Context, s Stop) {
	select {
	case c.queue <- s:
	default:
		c.leave(ctx, s, errQueueFull)
	}
}

// errQueueFull: the store is slower than the people who stop runs.
var errQueueFull = errors.New("queue is full")

func (c *Canceller) leave(ctx context.Context, s Stop, err error) {
	c.Logger.WarnContext(ctx, "stopped run is left to a worker", "skey", s.SKey, "run_id", s.RunID, "err", err)
}

func (c *Canceller) run(ctx context.Context) {
	for {
		select {
		case s := <-c.queue:
			c.cancel(ctx, s)
		case <-ctx.Done():
			c.drain(ctx)
			return
		}
	}
}

func (c *Canceller) drain(ctx context.Context) {
	for {
		select {
		case s := <-c.queue:
			c.cancel(ctx, s)
		default:
			return
		}
	}
}

// cancel ends one run; while the store is down it tries again. A stop of the component lets a try finish and no other
// follow.
func (c *Canceller) cancel(ctx context.Context, s Stop) {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = 20*time.Millisecond, 2*time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := c.try(context.WithoutCancel(ctx), s)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(delay), backoff.WithMaxElapsedTime(tryFor))
	if err != nil {
		c.leave(ctx, s, err)
	}
}

// try ends the run if it is still queued.
func (c *Canceller) try(ctx context.Context, s Stop) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	session, err := c.Store.Session(ctx, s.SKey)
	switch {
	case err != nil:
		return fmt.Errorf("read session: %w", err)
	case session.RunID != s.RunID || session.StopRun != s.RunID:
		return nil // ended meanwhile
	case session.State == store.Queued:
		return c.end(ctx, s, session, c.Store.StopQueued)
	default:
		c.signal(ctx, s)
		return nil
	}
}

// end writes the cancelled form of a run. A stop that nobody asked for in words is not confirmed: what interrupted the run
// is answered in its place.
func (c *Canceller) end(
	ctx context.Context, s Stop, session store.Session, write func(context.Context, store.QueuedStop) (store.FinishResult, error),
) error {
	taken, rows, err := inbox.Current(ctx, c.Store, session)
	if err != nil {
		return err
	}
	to, dropped, waiting := inbox.StopScope(rows, taken.To)
	if s.ReplyTo.Platform == "" { // the router that admitted the stop has forgotten it
		s = recall(s, rows, taken.Prompt)
	}
	var replies []store.NewReply
	if s.ReplyTo.Platform != "" && inbox.AsksForStop(rows) {
		replies = append(replies, notice.To(s.ReplyTo, inbox.StoppedText(waiting, dropped)))
	}
	q := form(s, session, taken, to, replies)
	result, err := write(ctx, q)
	switch {
	case err != nil:
		return fmt.Errorf("end stopped run: %w", err)
	case result.Outcome != store.Finished:
		c.signal(ctx, s)
	default:
		c.tell(ctx, ended{Stop: s, session: session, prompt: taken.Prompt, replies: replies, result: result, next: q.NextTraceparent})
	}
	return nil
}

// traceparentBehind is that of the first message that waits behind to.
func traceparentBehind(waiting []store.InboxRow, to int64) string {
	for _, row := range waiting {
		if row.Seq > to {
			return row.Traceparent
		}
	}
	return ""
}

func (c *Canceller) signal(ctx context.Context, s Stop) {
	c.Bells.Signal(ctx, dispatch.Signal{
		SKey: s.SKey, Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: s.Seq, Gen: s.Gen, RunID: s.RunID,
	})
}
