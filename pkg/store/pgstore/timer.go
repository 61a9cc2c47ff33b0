package pgstore

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// PutTimer implements store.Timers.
func (s *Store) PutTimer(ctx context.Context, t store.Timer) error {
	n, err := bounded(ctx, s.queries.PutTimer, dbgen.PutTimerParams{
		ID: t.ID, Skey: t.SKey, Part: int16(session.Partition(t.SKey)), Tenant: t.Tenant, Spec: t.Spec, Body: jsonb(t.Body),
		NextAt: timestamp(t.NextAt),
	})
	if err == nil && n == 0 {
		err = rejected("the id belongs to another session")
	}
	return wrap("put timer", err)
}

// Timers implements store.Timers.
func (s *Store) Timers(ctx context.Context, skey string) ([]store.Timer, error) {
	rows, err := bounded(ctx, s.queries.Timers, dbgen.TimersParams{Skey: skey, Part: int16(session.Partition(skey))})
	if err != nil {
		return nil, wrap("list timers", err)
	}
	return column(rows, func(r *dbgen.TimersRow) store.Timer { return timerOf((*dbgen.DueTimersRow)(r)) }), nil
}

func timerOf(r *dbgen.DueTimersRow) store.Timer {
	return store.Timer{ID: r.ID, SKey: r.Skey, Tenant: r.Tenant, Spec: r.Spec, Body: r.Body, NextAt: utc(r.NextAt)}
}

// DeleteTimer implements store.Timers.
func (s *Store) DeleteTimer(ctx context.Context, skey, id string) error {
	n, err := bounded(ctx, s.queries.DeleteTimer, dbgen.DeleteTimerParams{ID: id, Skey: skey})
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return wrap("delete timer", err)
}

// DueTimers implements store.Timers.
func (s *Store) DueTimers(ctx context.Context, partitions []int, limit int) ([]store.Timer, error) {
	rows, err := bounded(ctx, s.queries.DueTimers, dbgen.DueTimersParams{Parts: parts(partitions), MaxRows: int32(max(0, limit))})
	if err != nil {
		return nil, wrap("list due timers", err)
	}
	return column(rows, timerOf), nil
}

// MoveTimer implements store.Timers.
func (s *Store) MoveTimer(ctx context.Context, id string, from, to time.Time) (moved bool, err error) {
	var n int64
	if to.IsZero() {
		n, err = bounded(ctx, s.queries.EndTimer, dbgen.EndTimerParams{ID: id, OldAt: timestamp(from)})
	} else {
		n, err = bounded(ctx, s.queries.MoveTimer, dbgen.MoveTimerParams{ID: id, OldAt: timestamp(from), NextAt: timestamp(to)})
	}
	return n > 0, wrap("move timer", err)
}
