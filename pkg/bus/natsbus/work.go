package natsbus

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// outagePause is how long Fetch waits for a lost connection at least, so that its callers do not spin.
const outagePause = 250 * time.Millisecond

type worker struct {
	bus   *Bus
	queue bus.Queue

	mu   sync.Mutex
	idle []*puller
}

// Work implements bus.WorkQueues.
func (b *Bus) Work(ctx context.Context, q bus.Queue) (bus.Worker, error) {
	w := &worker{bus: b, queue: q}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// open creates stream and consumer where they are missing.
func (w *worker) open(ctx context.Context) error {
	cfg := jetstream.ConsumerConfig{
		Durable:       w.queue.Durable,
		FilterSubject: w.queue.Filter,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       w.queue.AckWait,
		MaxAckPending: w.queue.MaxAckPending,
		MaxDeliver:    -1,
	}
	if w.queue.New {
		cfg.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	_, err := w.bus.js.CreateOrUpdateConsumer(ctx, w.queue.Stream, cfg)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := w.bus.openStream(ctx, w.queue.Stream); err != nil {
			return err
		}
		_, err = w.bus.js.CreateOrUpdateConsumer(ctx, w.queue.Stream, cfg)
	}
	return wrap("open queue "+w.queue.Durable, err)
}

func (b *Bus) openStream(ctx context.Context, name string) error {
	cfg, ok := b.streams[name]
	if !ok {
		return wrap("open stream "+name, jetstream.ErrStreamNotFound)
	}
	return b.ensureStream(ctx, cfg)
}

// Fetch implements bus.Worker.
func (w *worker) Fetch(ctx context.Context, limit int, wait time.Duration) ([]bus.Work, error) {
	if err := w.bus.awaitConnection(ctx, max(wait, outagePause)); err != nil {
		return nil, wrap("fetch from "+w.queue.Durable, err)
	}
	work, err := w.fetch(ctx, limit, wait)
	if len(work) > 0 || err == nil || ctx.Err() != nil {
		return work, wrap("fetch from "+w.queue.Durable, err)
	}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	work, err = w.fetch(ctx, limit, wait)
	return work, wrap("fetch from "+w.queue.Durable, err)
}

// fetch takes what is there, else waits for one message: the rest of a request for more would be sent when nobody has room
// for it any more. Messages win over an error, which shows again at the next fetch.
func (w *worker) fetch(ctx context.Context, limit int, wait time.Duration) ([]bus.Work, error) {
	p, err := w.puller()
	if err != nil {
		return nil, err
	}
	work, err := p.pull(ctx, pullRequest{Batch: limit, NoWait: true})
	if len(work) == 0 && err == nil && wait > 0 {
		work, err = p.pull(ctx, pullRequest{Batch: 1, Expires: wait})
	}
	w.putBack(p, err)
	if len(work) > 0 {
		return work, nil
	}
	return nil, err
}

// puller takes one that is free: there are as many as there are concurrent fetches.
func (w *worker) puller() (*puller, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.idle); n > 0 {
		p := w.idle[n-1]
		w.idle = w.idle[:n-1]
		return p, nil
	}
	sub, err := w.bus.nc.SubscribeSync(w.bus.nc.NewInbox())
	if err != nil {
		return nil, err
	}
	next := "$JS.API.CONSUMER.MSG.NEXT." + w.queue.Stream + "." + w.queue.Durable
	return &puller{bus: w.bus, next: next, sub: sub}, nil
}

// putBack keeps a puller whose request has been answered to its end. Of any other one the answer may still be on its way, and
// must reach nobody: the broker drops a request whose subscription is gone.
func (w *worker) putBack(p *puller, err error) {
	if err != nil {
		_ = p.sub.Unsubscribe() // it fails only if the subscription has ended
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = append(w.idle, p)
}

// work is a message that waits for its acknowledgement.
type work struct {
	bus     *Bus
	reply   string
	msg     bus.Msg
	settled atomic.Bool
}

func (w *work) Msg() bus.Msg { return w.msg }

func (w *work) Ack() error { return w.settle("ack", "+ACK") }

func (w *work) Nak() error { return w.settle("nak", "-NAK") }

// settle sends one answer: a second one would change nothing.
func (w *work) settle(doing, answer string) error {
	if w.settled.Swap(true) {
		return nil
	}
	return wrap(doing, w.bus.nc.Publish(w.reply, []byte(answer)))
}

func newWork(b *Bus, m *nats.Msg) *work {
	w := &work{bus: b, reply: m.Reply, msg: fromNats(m)}
	w.msg.Reply = "" // the acknowledgement subject, which nobody else may use
	return w
}
