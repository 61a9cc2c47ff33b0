package pgstore

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Pause implements store.Operator.
func (s *Store) Pause(ctx context.Context, skey string) (store.Session, error) {
	err := send(ctx, s.sync, "pause session", func(b *pgx.Batch) {
		b.Queue(dbgen.LockSessions, []string{skey}) // or Pause would not see a run that a finish has just begun
		queue(b, dbgen.Pause, struct{ SKey string }{skey}, func(dbgen.PauseRow) {})
	})
	if err != nil {
		return store.Session{}, err
	}
	return s.Session(ctx, skey)
}

// Unpause implements store.Operator.
func (s *Store) Unpause(ctx context.Context, skey string, next uuid.UUID) (store.Unpaused, error) {
	var done *store.Unpaused
	err := send(ctx, s.sync, "unpause session", func(b *pgx.Batch) {
		done = nil
		b.Queue(dbgen.LockSessions, []string{skey}) // see Pause
		queue(b, dbgen.Unpause, dbgen.UnpauseParams{Skey: skey, Next: next}, func(r dbgen.UnpauseRow) {
			done = &store.Unpaused{State: store.SessionState(r.State), Gen: r.Gen, RunID: r.RunID.UUID, RunClass: r.RunClass}
		})
	})
	if err != nil || done != nil {
		return deref(done), err
	}
	now, err := s.Session(ctx, skey)
	return store.Unpaused{State: now.State, Gen: now.Gen, RunID: now.RunID, RunClass: now.RunClass}, err
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// FindSessions implements store.Operator.
func (s *Store) FindSessions(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	rows, err := bounded(ctx, s.queries.FindSessions, dbgen.FindSessionsParams{
		After: q.After, Tenant: q.Tenant, State: string(q.State), MaxRows: limit(q.Limit),
	})
	if err != nil {
		return nil, wrap("find sessions", err)
	}
	return column(rows, func(r *dbgen.FindSessionsRow) store.Session { return sessionOf((*dbgen.GetSessionRow)(r)) }), nil
}

// noLimit stands for all rows.
const noLimit = 1 << 30

func limit(n int) int32 {
	if n <= 0 {
		return noLimit
	}
	return int32(min(n, noLimit))
}

// Workers implements store.Operator.
func (s *Store) Workers(ctx context.Context) ([]store.WorkerState, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := s.queries.Workers(ctx)
	if err != nil {
		return nil, wrap("list workers", err)
	}
	return column(rows, func(r *dbgen.WorkersRow) store.WorkerState {
		return store.WorkerState{
			WorkerBeat: store.WorkerBeat{
				WorkerID: r.WorkerID, Boot: r.Boot, Slots: int(r.Slots), Used: int(r.Used), Draining: r.Draining,
			},
			Silent: time.Duration(r.SilentUs) * time.Microsecond,
		}
	}), nil
}

// Redeliver implements store.Operator.
func (s *Store) Redeliver(ctx context.Context, skey string, r store.NewReply) (store.Doorbell, error) {
	if r.DKey == "" {
		return store.Doorbell{}, wrap("redeliver", rejected("reply without a dkey"))
	}
	reply, err := encode("reply", newReplyJSON(&r))
	if err != nil {
		return store.Doorbell{}, wrap("redeliver", err)
	}
	params := dbgen.RedeliverParams{Skey: skey, Dkey: r.DKey, Reply: reply, Settled: r.Read}
	err = send(ctx, s.sync, "redeliver", func(b *pgx.Batch) {
		b.Queue(dbgen.LockSessions, []string{skey})
		b.Queue(dbgen.Redeliver, spread(params)...)
	})
	if err != nil {
		return store.Doorbell{}, err
	}
	row, err := bounded(ctx, s.queries.FindReply, dbgen.FindReplyParams{Dkey: r.DKey, Skey: skey})
	if err != nil {
		return store.Doorbell{}, wrap("redeliver", err)
	}
	return store.Doorbell{SKey: skey, OutSeq: row.OutSeq, Platform: row.Platform, Attempts: int(row.Attempts)}, nil
}
