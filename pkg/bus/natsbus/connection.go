package natsbus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

const (
	dialTimeout    = 2 * time.Second
	dialPause      = 200 * time.Millisecond
	reconnectWait  = 250 * time.Millisecond
	reconnectNoise = 100 * time.Millisecond
	pingInterval   = 5 * time.Second
	maxPingsOut    = 2
	// noBuffer: a message that waits for a reconnect would arrive after its sender gave it up.
	noBuffer = -1
	// restorePause lies between two attempts to re-create streams.
	restorePause = time.Second
)

// dial tries until ctx ends, as services and broker may start together.
func (b *Bus) dial(ctx context.Context) error {
	for {
		nc, err := nats.Connect(b.cfg.URL, b.options()...)
		if err == nil {
			b.nc = nc
			return nil
		}
		if !retryDial(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %w", bus.ErrUnavailable, ctx.Err(), err)
		case <-time.After(dialPause):
		}
	}
}

// retryDial refuses what waiting does not cure.
func retryDial(err error) bool {
	return !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, os.ErrNotExist)
}

func (b *Bus) options() []nats.Option {
	o := []nats.Option{
		nats.Name(b.cfg.Name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectNoise, reconnectNoise),
		nats.ReconnectBufSize(noBuffer),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.DisconnectErrHandler(b.onDisconnect),
		nats.ReconnectHandler(b.onReconnect),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
		nats.ErrorHandler(b.onError),
	}
	if b.cfg.Credentials != "" {
		o = append(o, nats.UserCredentials(b.cfg.Credentials))
	}
	if b.cfg.InProcess != nil {
		o = append(o, nats.InProcessServer(b.cfg.InProcess))
	}
	return o
}

func (b *Bus) onDisconnect(nc *nats.Conn, err error) {
	if nc.IsClosed() {
		return
	}
	b.readers.fail("disconnected")
	b.outages.note()
	b.logger.Warn("nats disconnected", "err", err)
}

func (b *Bus) onReconnect(*nats.Conn) {
	// Once more: a reader may have been opened between the loss of the connection and onDisconnect.
	b.readers.fail("reconnected")
	b.logger.Info("nats reconnected")
	select {
	case b.reconnected <- struct{}{}:
	default: // one is waiting already
	}
}

func (b *Bus) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	b.logger.Warn("nats error", "err", err)
}

// outages ends what waits for an answer of a connection that is lost. The zero value is ready.
type outages struct {
	mu sync.Mutex
	// life ends with the connection.
	life context.Context //nolint:containedctx // it belongs to the connection and not to a call
	end  context.CancelFunc
}

func (o *outages) current() context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life == nil {
		o.life, o.end = context.WithCancel(context.Background())
	}
	return o.life
}

func (o *outages) note() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life != nil {
		o.end()
		o.life = nil
	}
}

// whileConnected returns a context that ends, with nats.ErrDisconnected as its cause, when the connection is lost.
func (b *Bus) whileConnected(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.outages.current(), func() { cancel(nats.ErrDisconnected) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// maintain re-creates lost streams after each reconnect, until it succeeds.
func (b *Bus) maintain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.reconnected:
		}
		for b.restoreStreams(ctx) != nil && pause(ctx, restorePause) {
		}
	}
}

// awaitConnection waits for at most d.
func (b *Bus) awaitConnection(ctx context.Context, d time.Duration) error {
	if b.nc.IsConnected() {
		return nil
	}
	changes := b.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer b.nc.RemoveStatusListener(changes)
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !b.nc.IsConnected() {
		if b.nc.IsClosed() {
			return nats.ErrConnectionClosed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return bus.ErrUnavailable
		case <-changes:
		}
	}
	return nil
}

// pause reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
