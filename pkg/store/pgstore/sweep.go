package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// cursor is a place in the order (partition, queued_at, skey).
type cursor struct {
	partition int16
	micros    int64
	skey      string
}

func (c cursor) String() string { return fmt.Sprintf("%d %d %s", c.partition, c.micros, c.skey) }

func parseCursor(s string) (cursor, error) {
	c := cursor{partition: -1}
	if s == "" {
		return c, nil
	}
	if _, err := fmt.Sscanf(s, "%d %d %s", &c.partition, &c.micros, &c.skey); err != nil {
		return c, rejected("not a cursor of queued runs")
	}
	return c, nil
}

// QueuedRuns implements store.Sweep.
func (s *Store) QueuedRuns(
	ctx context.Context, partitions []int, age time.Duration, after string, limit int,
) (runs []store.QueuedRun, next string, err error) {
	at, err := parseCursor(after)
	if err != nil {
		return nil, "", wrap("list queued runs", err)
	}
	if limit <= 0 {
		return nil, "", nil
	}
	parts := slices.DeleteFunc(parts(partitions), func(p int16) bool { return p < at.partition })
	rows, err := bounded(ctx, s.queries.QueuedRuns, dbgen.QueuedRunsParams{
		Parts: parts, AgeUs: age.Microseconds(), MaxRows: int32(limit) + 1, // one more tells whether there is a next page
		AfterPart: at.partition, AfterAt: pgtype.Timestamptz{Time: time.UnixMicro(at.micros), Valid: true}, AfterSkey: at.skey,
	})
	if err != nil {
		return nil, "", wrap("list queued runs", err)
	}
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		next = cursor{last.Part, last.QueuedAt.Time.UnixMicro(), last.Skey}.String()
	}
	return column(rows, queuedRun), next, nil
}

func queuedRun(r *dbgen.QueuedRunsRow) store.QueuedRun {
	return store.QueuedRun{
		SKey: r.Skey, Tenant: r.Tenant, Gen: r.Gen, RunID: r.RunID.UUID, RunClass: r.RunClass,
		Age: time.Duration(r.AgeUs) * time.Microsecond,
	}
}

// parts returns the partitions in order, once each.
func parts(partitions []int) []int16 {
	out := column(partitions, func(p *int) int16 { return int16(*p) })
	slices.Sort(out)
	return slices.Compact(out)
}

// DueDeliveries implements store.Sweep.
func (s *Store) DueDeliveries(ctx context.Context, limit int) ([]store.Doorbell, error) {
	rows, err := bounded(ctx, s.queries.DueDeliveries, int32(max(0, limit)))
	if err != nil {
		return nil, wrap("list due deliveries", err)
	}
	return column(rows, func(r *dbgen.DueDeliveriesRow) store.Doorbell {
		return store.Doorbell{SKey: r.Skey, OutSeq: r.OutSeq, Platform: r.Platform, Attempts: int(r.Attempts)}
	}), nil
}

// Backlog implements store.Sweep.
func (s *Store) Backlog(ctx context.Context, partitions []int) (running, queued int, err error) {
	row, err := bounded(ctx, s.queries.Backlog, parts(partitions))
	if err != nil {
		return 0, 0, wrap("count backlog", err)
	}
	return int(row.Running), int(row.Queued), nil
}
