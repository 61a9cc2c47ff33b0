package backends

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
)

// aliasConnections is enough for lookups by key.
const aliasConnections = 2

// openAliases fails only for a configuration that cannot work; the database may come later.
func (o *Opened) openAliases(ctx context.Context, cfg config.Config) error {
	password, err := cfg.Postgres.Password.Value()
	if err != nil {
		return fmt.Errorf("postgres.password: %w", err)
	}
	pg := pgstore.Config{URL: cfg.Postgres.URL, Password: password, Connections: aliasConnections}
	late := newLateAliases(o.Logger, func(ctx context.Context) (closingAliases, error) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		return pgstore.Open(ctx, pg)
	})
	late.start(ctx)
	o.closers = append(o.closers, late.close)
	o.Aliases = late
	return nil
}

// closingAliases are the part of a store that is used.
type closingAliases interface {
	store.Aliases
	Close()
}

// lateAliases is a store that is opened in the background: until it is, every call is refused with ErrUnavailable. A
// process that can work without a database starts without it.
type lateAliases struct {
	open   func(ctx context.Context) (closingAliases, error)
	logger *slog.Logger
	loops  daemon.Loops

	mu    sync.Mutex
	store closingAliases
}

func newLateAliases(logger *slog.Logger, open func(ctx context.Context) (closingAliases, error)) *lateAliases {
	return &lateAliases{open: open, logger: logger}
}

func (l *lateAliases) start(ctx context.Context) { l.loops.Go(ctx, l.connect) }

const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// connect tries until it succeeds or the process ends.
func (l *lateAliases) connect(ctx context.Context) {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = firstRetry, lastRetry
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		opened, err := l.open(ctx)
		if err != nil {
			return struct{}{}, unreachable("postgres.url", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.store = opened
		return struct{}{}, nil
	}, backoff.WithBackOff(delay), backoff.WithMaxElapsedTime(0), backoff.WithNotify(l.failed(ctx)))
	if err == nil {
		l.logger.InfoContext(ctx, "store open, chats that have moved are recognised")
	}
}

// failed logs the first failure only.
func (l *lateAliases) failed(ctx context.Context) backoff.Notify {
	var once sync.Once
	return func(err error, _ time.Duration) {
		once.Do(func() { l.logger.WarnContext(ctx, "store not open yet, going on without it", "err", err) })
	}
}

func (l *lateAliases) close() error {
	err := l.loops.Stop(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store != nil {
		l.store.Close()
	}
	return err
}

func (l *lateAliases) current() (store.Aliases, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store == nil {
		return nil, fmt.Errorf("%w: not connected yet", store.ErrUnavailable)
	}
	return l.store, nil
}

// ResolveAliases implements store.Aliases.
func (l *lateAliases) ResolveAliases(ctx context.Context, addresses []store.Address) ([]string, error) {
	s, err := l.current()
	if err != nil {
		return nil, err
	}
	return s.ResolveAliases(ctx, addresses)
}

// LearnAlias implements store.Aliases.
func (l *lateAliases) LearnAlias(ctx context.Context, a store.Address, older string) (string, error) {
	s, err := l.current()
	if err != nil {
		return "", err
	}
	return s.LearnAlias(ctx, a, older)
}
