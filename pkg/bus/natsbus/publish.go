package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

const (
	// publishRetries follow the first attempt when its answer does not come.
	publishRetries = 3
	minBackoff     = 50 * time.Millisecond
	maxBackoff     = time.Second
	// maxPending bounds messages without an answer yet, of all callers together.
	maxPending = 16_384
)

// Publish implements bus.Publisher. Without a deadline it gives up after ten seconds.
func (b *Bus) Publish(ctx context.Context, m bus.Msg) (bus.Ack, error) {
	d := b.publish(ctx, []bus.Msg{m})[0]
	return d.ack, d.err
}

// PublishAll implements bus.Publisher. A message that has to be sent again may fall behind later ones of the call.
func (b *Bus) PublishAll(ctx context.Context, msgs []bus.Msg) []error {
	errs := make([]error, len(msgs))
	for i, d := range b.publish(ctx, msgs) {
		errs[i] = d.err
	}
	return errs
}

// delivery is the state of one message.
type delivery struct {
	msg      bus.Msg
	ack      bus.Ack
	err      error
	attempts int
}

// open reports whether another attempt may help. A missing stream may come back any time; an answer that does not come
// is waited for a few times only.
func (d *delivery) open() bool {
	return errors.Is(d.err, bus.ErrUnavailable) && !errors.Is(d.err, nats.ErrConnectionClosed) &&
		(d.noStream() || d.attempts <= publishRetries)
}

func (d *delivery) noStream() bool { return errors.Is(d.err, jetstream.ErrNoStreamResponse) }

func (b *Bus) publish(ctx context.Context, msgs []bus.Msg) []delivery {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.timing.budget)
		defer cancel()
	}
	all := make([]delivery, len(msgs))
	todo := make([]*delivery, len(msgs))
	for i := range msgs {
		all[i].msg = msgs[i]
		todo[i] = &all[i]
	}
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		b.attempt(ctx, todo)
		todo = slices.DeleteFunc(todo, func(d *delivery) bool { return !d.open() })
		if len(todo) == 0 || !pause(ctx, backoff) {
			return all
		}
		if slices.ContainsFunc(todo, (*delivery).noStream) {
			// An error shows again in the next attempt.
			_ = b.restoreStreams(ctx)
		}
	}
}

// attempt sends all messages before it waits for the first answer.
func (b *Bus) attempt(ctx context.Context, todo []*delivery) {
	if err := errors.Join(ctx.Err(), b.awaitConnection(ctx, b.timing.attempt)); err != nil {
		for _, d := range todo {
			d.settle(nil, err)
		}
		return
	}
	futures := make([]jetstream.PubAckFuture, len(todo))
	errs := make([]error, len(todo))
	for i, d := range todo {
		if lazy(todo, i) {
			errs[i] = b.nc.PublishMsg(toNats(d.msg))
			continue
		}
		futures[i], errs[i] = b.js.PublishMsgAsync(toNats(d.msg), jetstream.WithRetryAttempts(0), jetstream.WithStallWait(b.timing.attempt))
	}
	for i, d := range todo {
		switch {
		case errs[i] != nil:
			d.settle(nil, errs[i])
		case futures[i] != nil:
			d.settle(answer(ctx, futures[i]))
		}
	}
	// From behind: each lazy message goes by the next one that got an answer.
	next := bus.ErrUnavailable
	for i := len(todo) - 1; i >= 0; i-- {
		switch {
		case futures[i] != nil:
			next = todo[i].err
		case errs[i] == nil:
			todo[i].attempts++
			todo[i].err = next
		}
	}
}

// lazy reports whether a message goes without an answer of its own. The last of an attempt never does.
func lazy(todo []*delivery, i int) bool { return todo[i].msg.Lazy && i < len(todo)-1 }

func answer(ctx context.Context, f jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	select {
	case ack := <-f.Ok():
		return ack, nil
	case err := <-f.Err():
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *delivery) settle(ack *jetstream.PubAck, err error) {
	d.attempts++
	d.err = nil
	switch {
	case err == nil:
		d.ack = bus.Ack{Stream: ack.Stream, Seq: ack.Sequence, Duplicate: ack.Duplicate}
	case errors.Is(err, context.Canceled):
		d.err = fmt.Errorf("publish %s: %w: %w", d.msg.Subject, bus.ErrUnavailable, err)
	default:
		d.err = wrap("publish "+d.msg.Subject, err)
	}
}
