package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// RunningRuns implements store.Recovery. The cursor is the skey of the last row.
func (s *Store) RunningRuns(
	ctx context.Context, partitions []int, after string, limit int,
) (runs []store.ActiveRun, next string, err error) {
	if limit <= 0 {
		return nil, "", nil
	}
	rows, err := bounded(ctx, s.queries.RunningRuns, dbgen.RunningRunsParams{
		Parts: parts(partitions), After: after, MaxRows: int32(limit) + 1, // one more tells whether there is a next page
	})
	if err != nil {
		return nil, "", wrap("list running runs", err)
	}
	if len(rows) > limit {
		rows = rows[:limit]
		next = rows[limit-1].Skey
	}
	return column(rows, activeRun), next, nil
}

func activeRun(r *dbgen.RunningRunsRow) store.ActiveRun {
	silent := time.Duration(r.SilentUs) * time.Microsecond
	if r.SilentUs < 0 {
		silent = -1
	}
	return store.ActiveRun{
		SKey: r.Skey, Tenant: r.Tenant, RunClass: r.RunClass, Gen: r.Gen, RunID: r.RunID.UUID, Owner: r.Owner.String,
		Silent: silent, Untouched: time.Duration(r.UntouchedUs) * time.Microsecond,
		Attempt: int(r.Attempt), Stall: int(r.Stall), StallKey: r.StallKey.String,
	}
}

// Takeover implements store.Recovery.
func (s *Store) Takeover(ctx context.Context, t store.Takeover) (store.TakenOver, error) {
	params := dbgen.TakeoverParams{
		Skey: t.SKey, Gen: t.Gen, Owner: t.Owner, StallKey: t.StallKey, DelayUs: t.Delay.Microseconds(),
	}
	var taken *store.TakenOver
	err := send(ctx, s.sync, "take run over", func(b *pgx.Batch) {
		taken = nil
		queue(b, dbgen.Takeover, params, func(r dbgen.TakeoverRow) {
			taken = &store.TakenOver{Gen: r.Gen, RunID: r.RunID.UUID, Attempt: int(r.Attempt), Stall: int(r.Stall)}
		})
	})
	switch {
	case err != nil:
		return store.TakenOver{}, err
	case taken == nil:
		return store.TakenOver{}, wrap("take run over", store.ErrFenced)
	default:
		return *taken, nil
	}
}

// GiveUp implements store.Recovery.
func (s *Store) GiveUp(ctx context.Context, g store.GiveUp) (store.FinishResult, error) {
	params, err := giveUpParams(&g)
	if err != nil {
		return store.FinishResult{}, wrap("give run up", err)
	}
	result := store.FinishResult{Outcome: store.FinishFenced}
	err = send(ctx, s.sync, "give run up", func(b *pgx.Batch) {
		queue(b, dbgen.GiveUp, params, func(r dbgen.GiveUpRow) { result = finished(g.Replies, dbgen.FinishRow(r)) })
	})
	if err != nil {
		return store.FinishResult{}, err
	}
	return result, nil
}

func giveUpParams(g *store.GiveUp) (dbgen.GiveUpParams, error) {
	msgs, err := messagesJSON(g.Messages)
	if err != nil {
		return dbgen.GiveUpParams{}, err
	}
	calls, err := toolCallsJSON(g.Calls)
	if err != nil {
		return dbgen.GiveUpParams{}, err
	}
	replies, err := repliesJSON(g.Replies)
	if err != nil {
		return dbgen.GiveUpParams{}, err
	}
	return dbgen.GiveUpParams{
		Skey: g.SKey, Gen: g.Gen, RunID: g.RunID, Owner: g.Owner, RunGen: g.RunGen, FromSeq: g.From, Upto: g.To, Error: g.Error,
		Messages: msgs, ToolCalls: calls, Replies: replies, Settled: allRead(g.Replies),
		LetterID: g.Letter.ID, LetterKind: g.Letter.Kind, LetterRef: g.Letter.Ref, LetterReason: g.Letter.Reason,
		LetterPayload: jsonb(g.Letter.Payload), NextRunID: g.NextRunID, NextTraceparent: g.NextTraceparent,
	}, nil
}

// Reclaim implements store.Recovery.
func (s *Store) Reclaim(ctx context.Context, rs []store.Reclaim) ([]store.Reclaimed, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	gens := map[string]int64{} // by owner, which are unique
	err := send(ctx, s.sync, "reclaim runs", func(b *pgx.Batch) {
		clear(gens)
		queue(b, dbgen.Reclaim, reclaimParams(rs), func(r dbgen.ReclaimRow) { gens[r.Owner.String] = r.Gen })
	})
	if err != nil {
		return nil, err
	}
	return column(rs, func(r *store.Reclaim) store.Reclaimed {
		gen, ok := gens[r.Fresh]
		if !ok {
			return store.Reclaimed{Err: store.ErrFenced}
		}
		return store.Reclaimed{Gen: gen}
	}), nil
}

func reclaimParams(rs []store.Reclaim) dbgen.ReclaimParams {
	return dbgen.ReclaimParams{
		Skeys:  column(rs, func(r *store.Reclaim) string { return r.SKey }),
		Gens:   column(rs, func(r *store.Reclaim) int64 { return r.Gen }),
		RunIds: column(rs, func(r *store.Reclaim) uuid.UUID { return r.RunID }),
		Owners: column(rs, func(r *store.Reclaim) string { return r.Owner }),
		Fresh:  column(rs, func(r *store.Reclaim) string { return r.Fresh }),
	}
}

// RunToolCalls implements store.Recovery.
func (s *Store) RunToolCalls(ctx context.Context, id uuid.UUID) ([]store.ToolCall, error) {
	rows, err := bounded(ctx, s.queries.RunToolCalls, id)
	if err != nil {
		return nil, wrap("read tool calls of run "+id.String(), err)
	}
	return column(rows, func(r *dbgen.RunToolCallsRow) store.ToolCall {
		return store.ToolCall{CallID: r.CallID, Name: r.Name, Effect: r.Effect, State: store.ToolState(r.State), Result: r.Result}
	}), nil
}

// StaleStops implements store.Recovery.
func (s *Store) StaleStops(ctx context.Context, partitions []int, age time.Duration, limit int) ([]store.StaleStop, error) {
	rows, err := bounded(ctx, s.queries.StaleStops, dbgen.StaleStopsParams{
		Parts: parts(partitions), AgeUs: age.Microseconds(), MaxRows: int32(max(0, limit)),
	})
	if err != nil {
		return nil, wrap("list stale stops", err)
	}
	return column(rows, func(r *dbgen.StaleStopsRow) store.StaleStop {
		return store.StaleStop{
			SKey: r.Skey, Gen: r.Gen, RunID: r.RunID.UUID, State: store.SessionState(r.State), Owner: r.Owner.String,
		}
	}), nil
}

// EndStopped implements store.Recovery.
func (s *Store) EndStopped(ctx context.Context, q store.QueuedStop) (store.FinishResult, error) {
	return s.endStopped(ctx, "end stopped run", q, func(b *pgx.Batch, p dbgen.StopQueuedParams, done func(dbgen.FinishRow)) {
		queue(b, dbgen.EndStopped, dbgen.EndStoppedParams(p), func(r dbgen.EndStoppedRow) { done(dbgen.FinishRow(r)) })
	})
}

// WakeDue implements store.Sweep.
func (s *Store) WakeDue(ctx context.Context, partitions []int, fresh []uuid.UUID) ([]store.QueuedRun, error) {
	if len(fresh) == 0 {
		return nil, nil
	}
	rows, err := bounded(ctx, s.queries.WakeDue, dbgen.WakeDueParams{Parts: parts(partitions), Fresh: fresh})
	if err != nil {
		return nil, wrap("wake sessions", err)
	}
	return column(rows, func(r *dbgen.WakeDueRow) store.QueuedRun {
		return store.QueuedRun{SKey: r.Skey, Tenant: r.Tenant, Gen: r.Gen, RunID: r.RunID.UUID, RunClass: r.RunClass}
	}), nil
}

// RunningByTenant implements store.Sweep.
func (s *Store) RunningByTenant(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := s.queries.RunningByTenant(ctx)
	if err != nil {
		return nil, wrap("count running sessions", err)
	}
	running := make(map[string]int, len(rows))
	for _, r := range rows {
		running[r.Tenant] = int(r.Running)
	}
	return running, nil
}

// SettleGaps implements store.Recovery.
func (s *Store) SettleGaps(ctx context.Context, partitions []int, limit int) ([]store.Doorbell, error) {
	rows, err := bounded(ctx, s.queries.SettleGaps, dbgen.SettleGapsParams{Parts: parts(partitions), MaxRows: int32(max(0, limit))})
	if err != nil {
		return nil, wrap("settle gaps", err)
	}
	var next []store.Doorbell
	for _, r := range rows {
		if r.Found {
			next = append(next, store.Doorbell{
				SKey: r.Skey, OutSeq: r.OutSeq, Platform: r.Platform.String, Attempts: int(r.Attempts.Int32),
			})
		}
	}
	return next, nil
}

// endFrozen ends the database sessions of this role that hold a transaction open while they wait for their client.
const endFrozen = `select pg_terminate_backend(a.pid) from pg_stat_activity a
	where a.usename = current_user and a.datname = current_database() and a.pid <> pg_backend_pid()
		and (a.state = 'active' and a.wait_event = 'ClientRead' or a.state like 'idle in transaction%')
		and a.xact_start < now() - $1::interval`

// EndFrozen implements store.Recovery.
func (s *Store) EndFrozen(ctx context.Context, age time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tag, err := s.sync.Exec(ctx, endFrozen, fmt.Sprintf("%d microseconds", age.Microseconds()))
	return int(tag.RowsAffected()), wrap("end frozen sessions", err)
}
