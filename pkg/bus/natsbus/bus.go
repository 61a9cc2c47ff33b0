package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/singleflight"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// Config of a connection.
type Config struct {
	// URL of one broker or, comma-separated, of several of a cluster. Unused with InProcess.
	URL string
	// Credentials is the path of a NATS credentials file; "" connects without.
	Credentials string
	// Name shows up in the broker's list of connections.
	Name    string
	Streams bus.Config
	// InProcess connects to a server in this process without a network.
	InProcess nats.InProcessConnProvider
}

func (c Config) validate() error {
	if c.URL == "" && c.InProcess == nil {
		return errors.New("nats: no url")
	}
	for _, u := range strings.Split(c.URL, ",") {
		if _, err := url.Parse(u); err != nil {
			return errors.New("nats: url: not valid") // the text of err would show a password
		}
	}
	if s := c.Streams.Streams; s < 1 || session.Partitions%s != 0 {
		return fmt.Errorf("nats: streams: %d does not divide %d", s, session.Partitions)
	}
	if c.Streams.Replicas < 1 {
		return fmt.Errorf("nats: replicas: %d is less than 1", c.Streams.Replicas)
	}
	return nil
}

// timing holds what tests shorten.
type timing struct {
	// attempt is the time that one publish waits for its answer, budget that of all attempts if the caller has no deadline.
	attempt, budget time.Duration
	// heartbeat of log readers; twice that without a sign of life breaks them.
	heartbeat time.Duration
	// call bounds every other request.
	call time.Duration
}

func defaultTiming() timing {
	return timing{attempt: 2 * time.Second, budget: 10 * time.Second, heartbeat: 5 * time.Second, call: 5 * time.Second}
}

// Bus implements bus.Bus. Close ends its goroutines.
type Bus struct {
	partitionLog

	cfg    Config
	timing timing
	logger *slog.Logger

	nc      *nats.Conn
	js      jetstream.JetStream
	streams map[string]jetstream.StreamConfig
	restore singleflight.Group

	inbound   chan *nats.Msg
	listeners sync.Map // *nats.Subscription -> chan<- bus.Msg
	readers   readers
	objects   objects
	outages   outages

	wg          sync.WaitGroup
	stop        context.CancelFunc
	reconnected chan struct{}
	closed      chan struct{}
	closeOnce   sync.Once
}

var _ bus.Bus = (*Bus)(nil)

// Connect waits until the broker answers or ctx ends.
func Connect(ctx context.Context, cfg Config, logger *slog.Logger) (*Bus, error) {
	return connect(ctx, cfg, logger, defaultTiming())
}

func connect(ctx context.Context, cfg Config, logger *slog.Logger, t timing) (*Bus, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Bus{
		cfg:         cfg,
		timing:      t,
		logger:      logger,
		streams:     streamConfigs(cfg.Streams),
		inbound:     make(chan *nats.Msg, inboundBuffer),
		readers:     readers{open: make(map[*reader]struct{})},
		reconnected: make(chan struct{}, 1),
		closed:      make(chan struct{}),
	}
	b.partitionLog = partitionLog{bus: b}
	if err := b.dial(ctx); err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	js, err := jetstream.New(b.nc, jetstream.WithDefaultTimeout(t.call),
		jetstream.WithPublishAsyncTimeout(t.attempt), jetstream.WithPublishAsyncMaxPending(maxPending))
	if err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("connect to jetstream: %w", err)
	}
	b.js = js
	// The background work ends with Close and not with the caller's context.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.wg.Go(func() { b.maintain(background) })
	b.wg.Go(func() { b.dispatch(background) })
	return b, nil
}

// Ready asks the broker for a sign of life.
func (b *Bus) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timing.call)
	defer cancel()
	if !b.nc.IsConnected() {
		return fmt.Errorf("nats: %w: not connected", bus.ErrUnavailable)
	}
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("nats: %w: %w", bus.ErrUnavailable, err)
	}
	return nil
}

// Close breaks the open readers, flushes what was sent and disconnects. It may be called twice.
func (b *Bus) Close() error {
	var err error
	b.closeOnce.Do(func() { err = b.close() })
	return err
}

func (b *Bus) close() error {
	b.readers.shut("bus closed")
	var err error
	if b.nc.IsConnected() {
		err = b.nc.FlushTimeout(b.timing.call)
	}
	b.stop()
	b.nc.Close()
	<-b.closed
	b.wg.Wait()
	if err != nil {
		return fmt.Errorf("close nats: flush: %w", err)
	}
	return nil
}
