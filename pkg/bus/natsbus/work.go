package natsbus

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// outagePause is how long Fetch waits for a lost connection at least, so that its callers do not spin.
const outagePause = 250 * time.Millisecond

type worker struct {
	bus      *Bus
	queue    bus.Queue
	consumer atomic.Value // jetstream.Consumer
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
	c, err := w.bus.js.CreateOrUpdateConsumer(ctx, w.queue.Stream, cfg)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := w.bus.openStream(ctx, w.queue.Stream); err != nil {
			return err
		}
		c, err = w.bus.js.CreateOrUpdateConsumer(ctx, w.queue.Stream, cfg)
	}
	if err != nil {
		return wrap("open queue "+w.queue.Durable, err)
	}
	w.consumer.Store(consumer{c})
	return nil
}

// consumer gives all implementations one type, as atomic.Value demands.
type consumer struct{ jetstream.Consumer }

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

// fetch takes what is there, else waits for one message: a request for more would hold the first one back until the
// whole batch is complete.
func (w *worker) fetch(ctx context.Context, limit int, wait time.Duration) ([]bus.Work, error) {
	c := w.consumer.Load().(consumer)
	batch, err := c.FetchNoWait(limit)
	if err != nil {
		return nil, err
	}
	work, err := collect(batch)
	if len(work) > 0 || err != nil || wait <= 0 || ctx.Err() != nil {
		return work, errors.Join(err, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	batch, err = c.Fetch(1, jetstream.FetchContext(ctx))
	if err != nil {
		return nil, err
	}
	return collect(batch)
}

// collect drains the batch. Messages win over an error: it shows again at the next fetch.
func collect(batch jetstream.MessageBatch) ([]bus.Work, error) {
	var work []bus.Work
	for m := range batch.Messages() {
		work = append(work, newWork(m))
	}
	err := batch.Error()
	if len(work) > 0 || errors.Is(err, context.DeadlineExceeded) {
		return work, nil
	}
	return nil, err
}

// work is a message that waits for its acknowledgement.
type work struct {
	raw jetstream.Msg
	msg bus.Msg
}

func newWork(m jetstream.Msg) *work {
	id, h := fromHeader(m.Headers())
	return &work{raw: m, msg: bus.Msg{Subject: m.Subject(), ID: id, Header: h, Data: m.Data()}}
}

func (w *work) Msg() bus.Msg { return w.msg }

func (w *work) Ack() error { return settled("ack", w.raw.Ack()) }

func (w *work) Nak() error { return settled("nak", w.raw.Nak()) }

// settled: a second answer changes nothing.
func settled(doing string, err error) error {
	if isOneOf(err, jetstream.ErrMsgAlreadyAckd, nats.ErrMsgAlreadyAckd) {
		return nil
	}
	return wrap(doing, err)
}
