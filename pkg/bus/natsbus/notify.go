package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// inboundBuffer holds messages between the connection and dispatch, which never blocks.
const inboundBuffer = 8192

// Notify implements bus.Notifier.
func (b *Bus) Notify(_ context.Context, m bus.Msg) error {
	return wrap("notify "+m.Subject, b.nc.PublishMsg(toNats(m)))
}

// Request implements bus.Notifier. Without a deadline it waits five seconds.
func (b *Bus) Request(ctx context.Context, m bus.Msg) (bus.Msg, error) {
	ctx, cancel := b.withDeadline(ctx)
	defer cancel()
	answer, err := b.nc.RequestMsgWithContext(ctx, toNats(m))
	if errors.Is(err, nats.ErrNoResponders) {
		return bus.Msg{}, fmt.Errorf("request %s: %w", m.Subject, bus.ErrNoResponder)
	}
	if err != nil {
		return bus.Msg{}, wrap("request "+m.Subject, err)
	}
	return fromNats(answer), nil
}

func (b *Bus) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.timing.call)
}

// Listen implements bus.Notifier. All listeners share one goroutine, so there may be one per active run.
func (b *Bus) Listen(subject string, ch chan<- bus.Msg) (bus.Subscription, error) {
	sub, err := b.nc.ChanSubscribe(subject, b.inbound)
	if err != nil {
		return nil, wrap("listen on "+subject, err)
	}
	b.listeners.Store(sub, ch)
	s := &subscription{bus: b, sub: sub}
	// The broker answers in order: once it has answered, it knows the subscription.
	if err := b.nc.FlushTimeout(b.timing.call); err != nil {
		return nil, errors.Join(wrap("listen on "+subject, err), s.Close())
	}
	return s, nil
}

// dispatch hands messages to their listeners and drops them where a channel is full.
func (b *Bus) dispatch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-b.inbound:
			b.deliver(m)
		}
	}
}

func (b *Bus) deliver(m *nats.Msg) {
	ch, ok := b.listeners.Load(m.Sub)
	if !ok {
		return // closed meanwhile
	}
	select {
	case ch.(chan<- bus.Msg) <- fromNats(m):
	default: // full: the port drops
	}
}

type subscription struct {
	bus *Bus
	sub *nats.Subscription
}

// Close implements bus.Subscription.
func (s *subscription) Close() error {
	s.bus.listeners.Delete(s.sub)
	err := s.sub.Unsubscribe()
	if isOneOf(err, nats.ErrBadSubscription, nats.ErrConnectionClosed) {
		return nil // closed before
	}
	return wrap("unsubscribe", err)
}
