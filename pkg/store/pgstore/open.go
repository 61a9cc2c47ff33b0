package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Config says where the database is.
type Config struct {
	// URL is a connection URL or a keyword string of libpq.
	URL string
	// Password, if set, takes the place of the one in URL.
	Password string
	// Connections per pool, 0 = 8. There are two pools.
	Connections int
}

const (
	defaultConnections = 8
	connectTimeout     = 5 * time.Second
	// callTimeout bounds a call whatever the caller's context says; a statement is ended by the server before it.
	callTimeout = 10 * time.Second
)

// Store implements store.Store.
type Store struct {
	// async commits without waiting for the disk. Only Admit, Claim and ClaimDeliveries use it.
	async *pgxpool.Pool
	sync  *pgxpool.Pool
	// queries run single statements on sync.
	queries *dbgen.Queries
}

var _ store.Store = (*Store)(nil)

// Open connects both pools and warms all their connections. It refuses a database that is not migrated.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	pending, err := Pending(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if len(pending) > 0 {
		return nil, fmt.Errorf("open store: %w (missing versions %v)", ErrNotMigrated, pending)
	}
	s := &Store{}
	if s.async, err = cfg.connect(ctx, "off", warmAsync); err != nil {
		return nil, wrap("open store", err)
	}
	if s.sync, err = cfg.connect(ctx, "on", warmSync); err != nil {
		s.async.Close()
		return nil, wrap("open store", err)
	}
	s.queries = dbgen.New(s.sync)
	return s, nil
}

// Close waits for the calls that are running and closes all connections.
func (s *Store) Close() {
	s.async.Close()
	s.sync.Close()
}

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return wrap("ping", errors.Join(s.async.Ping(ctx), s.sync.Ping(ctx)))
}

// settings of every connection, see the comments in queries/ and docs/architecture.md.
func settings() map[string]string {
	return map[string]string{
		"default_transaction_isolation": "read committed",
		// One plan per statement and connection. Without it inbox, history and outbox reads are planned anew at each call.
		"plan_cache_mode": "force_generic_plan",
		// A plan that was made while a table was small stays.
		"enable_seqscan": "off",
		"jit":            "off",
		// A paused process must not hold the rows of sessions.
		"statement_timeout":                   "5s",
		"idle_in_transaction_session_timeout": "10s",
		"tcp_user_timeout":                    "5000",
	}
}

// connect opens a pool and all its connections. synchronousCommit is a start-up parameter: SET LOCAL does nothing in a
// pipeline.
func (c Config) connect(ctx context.Context, synchronousCommit string, warm func(*pgx.Batch)) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if c.Password != "" {
		cfg.ConnConfig.Password = c.Password
	}
	n := c.Connections
	if n == 0 {
		n = defaultConnections
	}
	cfg.MaxConns, cfg.MinConns = int32(n), int32(n)
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	maps.Copy(cfg.ConnConfig.RuntimeParams, settings())
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = synchronousCommit
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return prepare(ctx, conn, warm) }
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := fillPool(ctx, pool, n); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func fillPool(ctx context.Context, pool *pgxpool.Pool, n int) error {
	for range n {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // after the loop, so that each turn makes another connection
	}
	return nil
}
