package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/ratelimit/redislimit"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
)

// ErrUnreachable: a server did not answer at start-up.
var ErrUnreachable = errors.New("unreachable")

// Needs says which servers a service uses.
type Needs struct {
	Bus, Leases, Store bool
	// Limits opens Redis too, for rates and hints: what works without it need not wait for it at the start.
	Limits bool
	// Aliases opens the store in the background, for services that use nothing else of it and go on without it.
	Aliases bool
}

// Opened are backends that have to be closed.
type Opened struct {
	Backends
	closers []func() error
}

// Each server has its own bound, so that three dead ones do not add up. The store has longer: its connections prepare
// every statement before the process is ready, which takes time while a whole deployment starts.
const (
	probeTimeout = 10 * time.Second
	storeTimeout = 25 * time.Second
)

// Open connects to the servers that cfg names. It tries all of them and joins the problems, one line each, beginning
// with the configuration key.
func Open(ctx context.Context, cfg config.Config, name string, needs Needs, tel *telemetry.Telemetry) (*Opened, error) {
	o := &Opened{Backends: Backends{Logger: tel.Logger, Traces: tel.Traces, Meters: tel.Meters}}
	var errs []error
	if needs.Bus {
		errs = append(errs, o.openBus(ctx, cfg, name))
	}
	if needs.Leases || needs.Limits {
		errs = append(errs, o.openRedis(ctx, cfg, needs.Leases))
	}
	if needs.Store {
		errs = append(errs, o.openStore(ctx, cfg))
	}
	if needs.Aliases {
		errs = append(errs, o.openAliases(ctx, cfg))
	}
	if err := errors.Join(errs...); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Close disconnects in reverse order.
func (o *Opened) Close() {
	for i := len(o.closers) - 1; i >= 0; i-- {
		if err := o.closers[i](); err != nil {
			o.Logger.Warn("close backend", "err", err)
		}
	}
	o.closers = nil
}

func (o *Opened) openBus(ctx context.Context, cfg config.Config, name string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	b, err := natsbus.Connect(ctx, natsbus.Config{
		URL: cfg.NATS.URL, Credentials: cfg.NATS.Credentials, Name: "hermes-" + name, Streams: cfg.NATS.Streams,
	}, o.Logger)
	if err != nil {
		return unreachable("nats.url", err)
	}
	o.closers = append(o.closers, b.Close)
	o.Bus = b
	if err := b.EnsureStreams(ctx); err != nil {
		return fmt.Errorf("nats.streams: %w", err)
	}
	return nil
}

// openRedis opens what Redis holds. Where it is not required, a server that does not answer or may evict only warns.
func (o *Opened) openRedis(ctx context.Context, cfg config.Config, required bool) error {
	password, err := cfg.Redis.Password.Value()
	if err != nil {
		return fmt.Errorf("redis.password: %w", err)
	}
	l, err := redislease.Open(ctx, redislease.Config{URL: cfg.Redis.URL, Password: password})
	if err != nil {
		return fmt.Errorf("redis.url: %w", err)
	}
	o.closers = append(o.closers, l.Close)
	o.Leases = l
	limits, err := redislimit.Open(redislimit.Config{URL: cfg.Redis.URL, Password: password})
	if err != nil {
		return fmt.Errorf("redis.url: %w", err)
	}
	o.closers = append(o.closers, limits.Close)
	o.Limits = ratelimit.Fallback(limits, ratelimit.NewLocal())
	if err = o.checkRedis(ctx, l); err != nil && !required {
		o.Logger.WarnContext(ctx, "going on without redis", "err", err)
		return nil
	}
	return err
}

func (o *Opened) checkRedis(ctx context.Context, l *redislease.Leases) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		return unreachable("redis.url", err)
	}
	warning, err := l.CheckEviction(ctx)
	if err != nil {
		return fmt.Errorf("redis.url: %w", err)
	}
	if warning != "" {
		o.Logger.LogAttrs(ctx, slog.LevelWarn, "redis may lose leases", slog.String("reason", warning))
	}
	return nil
}

func (o *Opened) openStore(ctx context.Context, cfg config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	password, err := cfg.Postgres.Password.Value()
	if err != nil {
		return fmt.Errorf("postgres.password: %w", err)
	}
	s, err := pgstore.Open(ctx, pgstore.Config{URL: cfg.Postgres.URL, Password: password, Connections: cfg.Postgres.Connections})
	if err != nil {
		return unreachable("postgres.url", err)
	}
	o.closers = append(o.closers, func() error { s.Close(); return nil })
	o.Store = s
	return nil
}

// unreachable names the key and keeps what the backend said.
func unreachable(key string, err error) error {
	return &startError{key: key, err: err}
}

type startError struct {
	key string
	err error
}

// Error is one line, whatever the driver wrote: an operator reads one line per problem.
func (e *startError) Error() string {
	return e.key + ": " + strings.Join(strings.Fields(e.err.Error()), " ")
}

func (e *startError) Unwrap() []error { return []error{ErrUnreachable, e.err} }
