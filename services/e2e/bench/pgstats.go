package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5" //nolint:depguard // reads statistics of the server, not the store's tables
)

// pgStats reads the statistics of the PostgreSQL server.
type pgStats struct {
	conn  *pgx.Conn
	syncs string
}

// pgCounters rise from the start of the server.
type pgCounters struct {
	// syncs of the write-ahead log to disk.
	syncs int64
	// transactions that wrote something: only those get a transaction id, so reads are not counted.
	transactions int64
}

// From PostgreSQL 18 on, syncs are counted with the other I/O.
const (
	syncsOfWAL = "select wal_sync from pg_stat_wal"
	syncsOfIO  = "select sum(fsyncs)::bigint from pg_stat_io where object = 'wal'"
)

const statsTimeout = 10 * time.Second

func openStats(ctx context.Context, url string) (*pgStats, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect for statistics: %w", err)
	}
	s := &pgStats{conn: conn, syncs: syncsOfWAL}
	var version int
	if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		return nil, fmt.Errorf("read version of postgres: %w", err)
	}
	if version >= 18_00_00 {
		s.syncs = syncsOfIO
	}
	return s, nil
}

func (s *pgStats) read(ctx context.Context) (c pgCounters, err error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	const all = "select (%s), pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
	err = s.conn.QueryRow(ctx, fmt.Sprintf(all, s.syncs)).Scan(&c.syncs, &c.transactions)
	if err != nil {
		return c, fmt.Errorf("read statistics of postgres: %w", err)
	}
	return c, nil
}

// setting reads a setting of the server.
func (s *pgStats) setting(ctx context.Context, name string) (value string, err error) {
	err = s.conn.QueryRow(ctx, "select current_setting($1)", name).Scan(&value)
	if err != nil {
		return "", fmt.Errorf("read setting %s: %w", name, err)
	}
	return value, nil
}

func (s *pgStats) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsTimeout) // an interrupt has ended ctx
	defer cancel()
	return s.conn.Close(ctx)
}
