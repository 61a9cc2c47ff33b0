package pgstore

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Finish implements store.Runs: the set form for those that are not cancelled, the single form for the others and for
// those that the set form has not answered. If content of one of several is refused, the others are still stored; the
// error remains, and the caller finds out whose it is by repeating them one by one.
func (s *Store) Finish(ctx context.Context, fins []store.Finish) ([]store.FinishResult, error) {
	params := make([]dbgen.FinishParams, len(fins))
	for i := range fins {
		var err error
		if params[i], err = finishParams(&fins[i]); err != nil {
			return nil, wrap("finish runs", err)
		}
	}
	done, err := s.finishBatch(ctx, params)
	if err != nil && !errors.Is(err, store.ErrRejected) {
		return nil, err
	}
	results := make([]store.FinishResult, len(params))
	var all []error
	for i := range params {
		key := finishKey{params[i].Skey, params[i].Owner}
		if row, ok := done[key]; ok {
			results[i] = finished(fins[i].Replies, row)
			delete(done, key) // the same one twice: the other was not the one that was written
			continue
		}
		var err error
		results[i], err = s.finish(ctx, &fins[i], params[i])
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	return results, nil
}

// finishKey names a finish in the result of the set form; owners are unique.
type finishKey struct{ skey, owner string }

// finishBatch is the group commit. What is missing in the result is stopped, fenced or unknown; an error writes nothing.
func (s *Store) finishBatch(ctx context.Context, params []dbgen.FinishParams) (map[finishKey]dbgen.FinishRow, error) {
	var plain []dbgen.FinishParams
	for _, p := range params {
		if !p.Cancelled {
			plain = append(plain, p)
		}
	}
	if len(plain) == 0 {
		return nil, nil
	}
	done := map[finishKey]dbgen.FinishRow{}
	err := send(ctx, s.sync, "finish runs", func(b *pgx.Batch) {
		queue(b, dbgen.FinishBatch, finishBatchParams(plain), func(r dbgen.FinishBatchRow) {
			done[finishKey{r.Skey, r.OldOwner}] = dbgen.FinishRow{
				Gen: r.Gen, RunID: r.RunID, OutSeq: r.OutSeq, OutSent: r.OutSent,
			}
		})
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// finish is the single form and, if it wrote nothing, the reason.
func (s *Store) finish(ctx context.Context, f *store.Finish, p dbgen.FinishParams) (store.FinishResult, error) {
	var rows []dbgen.FinishRow
	err := send(ctx, s.sync, "finish run", func(b *pgx.Batch) {
		rows = nil
		queue(b, dbgen.Finish, p, func(r dbgen.FinishRow) { rows = append(rows, r) })
	})
	if err != nil {
		return store.FinishResult{}, err
	}
	if len(rows) == 1 {
		return finished(f.Replies, rows[0]), nil
	}
	// A statement of its own: this one sees what the other may have waited for.
	why, err := bounded(ctx, s.queries.FinishState, dbgen.FinishStateParams{
		Skey: p.Skey, Gen: p.Gen, RunID: p.RunID, Owner: p.Owner, State: p.State,
	})
	switch {
	case err != nil:
		return store.FinishResult{}, wrap("finish run", err)
	case why.Held:
		return store.FinishResult{Outcome: store.FinishStopped}, nil
	case why.Committed:
		return store.FinishResult{Outcome: store.Finished}, nil
	default:
		return store.FinishResult{Outcome: store.FinishFenced}, nil
	}
}

// StopQueued implements store.Runs.
func (s *Store) StopQueued(ctx context.Context, q store.QueuedStop) (store.FinishResult, error) {
	return s.endStopped(ctx, "stop queued run", q, func(b *pgx.Batch, p dbgen.StopQueuedParams, done func(dbgen.FinishRow)) {
		queue(b, dbgen.StopQueued, p, func(r dbgen.StopQueuedRow) { done(dbgen.FinishRow(r)) })
	})
}

// endStopped sends a cancelled form that needs no fence.
func (s *Store) endStopped(
	ctx context.Context, doing string, q store.QueuedStop, statement func(*pgx.Batch, dbgen.StopQueuedParams, func(dbgen.FinishRow)),
) (store.FinishResult, error) {
	replies, err := repliesJSON(q.Replies)
	if err != nil {
		return store.FinishResult{}, wrap(doing, err)
	}
	params := dbgen.StopQueuedParams{
		Skey: q.SKey, Gen: q.Gen, RunID: q.RunID, FromSeq: q.From, Upto: q.To, Replies: replies, Settled: allRead(q.Replies),
		NextRunID: q.NextRunID, NextTraceparent: q.NextTraceparent,
	}
	result := store.FinishResult{Outcome: store.FinishFenced}
	err = send(ctx, s.sync, doing, func(b *pgx.Batch) {
		statement(b, params, func(r dbgen.FinishRow) { result = finished(q.Replies, r) })
	})
	if err != nil {
		return store.FinishResult{}, err
	}
	return result, nil
}

func finished(replies []store.NewReply, r dbgen.FinishRow) store.FinishResult {
	out := store.FinishResult{
		Outcome: store.Finished, Known: true, Gen: r.Gen, RunID: r.RunID.UUID, Settled: r.OutSent == r.OutSeq,
	}
	if n := int64(len(replies)); n > 0 {
		out.FirstOut = r.OutSeq - n + 1
	}
	return out
}

func finishParams(f *store.Finish) (dbgen.FinishParams, error) {
	msgs, err := messagesJSON(f.Messages)
	if err != nil {
		return dbgen.FinishParams{}, err
	}
	replies, err := repliesJSON(f.Replies)
	if err != nil {
		return dbgen.FinishParams{}, err
	}
	return dbgen.FinishParams{
		Skey: f.SKey, Gen: f.Gen, RunID: f.RunID, Owner: f.Owner, RunGen: f.RunGen, FromSeq: f.From, Upto: f.To,
		State: string(f.State), Cancelled: f.State == store.RunCancelled, Error: f.Error, Usage: jsonb(f.Usage),
		Messages: msgs, Replies: replies, Settled: allRead(f.Replies),
		NextRunID: f.NextRunID, NextTraceparent: f.NextTraceparent,
	}, nil
}

func finishBatchParams(fins []dbgen.FinishParams) dbgen.FinishBatchParams {
	type finish = dbgen.FinishParams
	return dbgen.FinishBatchParams{
		Skeys:            column(fins, func(f *finish) string { return f.Skey }),
		Gens:             column(fins, func(f *finish) int64 { return f.Gen }),
		RunIds:           column(fins, func(f *finish) uuid.UUID { return f.RunID }),
		Owners:           column(fins, func(f *finish) string { return f.Owner }),
		Uptos:            column(fins, func(f *finish) int64 { return f.Upto }),
		NextRunIds:       column(fins, func(f *finish) uuid.UUID { return f.NextRunID }),
		RunGens:          column(fins, func(f *finish) int64 { return f.RunGen }),
		Messages:         column(fins, func(f *finish) []byte { return f.Messages }),
		Replies:          column(fins, func(f *finish) []byte { return f.Replies }),
		Settled:          column(fins, func(f *finish) bool { return f.Settled }),
		Froms:            column(fins, func(f *finish) int64 { return f.FromSeq }),
		NextTraceparents: column(fins, func(f *finish) string { return f.NextTraceparent }),
		States:           column(fins, func(f *finish) string { return f.State }),
		Errors:           column(fins, func(f *finish) string { return f.Error }),
		Usages:           column(fins, func(f *finish) []byte { return f.Usage }),
	}
}
