package pgstore

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Checkpoint implements store.Runs.
func (s *Store) Checkpoint(ctx context.Context, cps []store.Checkpoint) ([]store.CheckpointResult, error) {
	return eachOrAll("checkpoint", cps, func(params []dbgen.CheckpointParams) ([]store.CheckpointResult, error) {
		results := make([]store.CheckpointResult, len(params))
		err := send(ctx, s.sync, "checkpoint", func(b *pgx.Batch) {
			lockSessions(b, params)
			for i := range params {
				results[i] = store.CheckpointResult{Err: store.ErrFenced}
				queue(b, dbgen.Checkpoint, params[i], func(r dbgen.CheckpointRow) {
					results[i] = store.CheckpointResult{
						Signals:  store.Signals{LastSeq: r.LastSeq, CtlSeq: r.CtlSeq, StopRun: r.StopRun.UUID},
						FirstOut: r.FirstOut,
					}
				})
			}
		})
		return results, err
	})
}

// Handover implements store.Runs.
func (s *Store) Handover(ctx context.Context, cps []store.Checkpoint) ([]store.HandoverResult, error) {
	return eachOrAll("hand over", cps, func(params []dbgen.CheckpointParams) ([]store.HandoverResult, error) {
		results := make([]store.HandoverResult, len(params))
		err := send(ctx, s.sync, "hand over", func(b *pgx.Batch) {
			lockSessions(b, params)
			for i := range params {
				results[i] = store.HandoverResult{Err: store.ErrFenced}
				queue(b, dbgen.Handover, dbgen.HandoverParams(params[i]), func(r dbgen.HandoverRow) {
					results[i] = store.HandoverResult{Gen: r.Gen}
				})
			}
		})
		return results, err
	})
}

// eachOrAll sends all as one pipeline, an error of which writes nothing. If content of one of several is refused, the
// others are still stored; the error remains, and the caller finds out whose it is by repeating them one by one.
func eachOrAll[R any](
	doing string, cps []store.Checkpoint, sendAll func([]dbgen.CheckpointParams) ([]R, error),
) ([]R, error) {
	params := make([]dbgen.CheckpointParams, len(cps))
	for i := range cps {
		var err error
		if params[i], err = checkpointParams(&cps[i]); err != nil {
			return nil, wrap(doing, err)
		}
	}
	results, err := sendAll(params)
	if err == nil {
		return results, nil
	}
	if len(params) == 1 || !errors.Is(err, store.ErrRejected) {
		return nil, err
	}
	all := make([]error, len(params))
	for i := range params {
		one, err := sendAll(params[i : i+1])
		copy(results[i:], one)
		all[i] = err
	}
	return results, errors.Join(all...)
}

// lockSessions comes first where several sessions are written, or where a statement has to see what an earlier try of it
// may have written: replies.
func lockSessions(b *pgx.Batch, params []dbgen.CheckpointParams) {
	replies := func(p dbgen.CheckpointParams) bool { return string(p.Replies) != "[]" }
	if len(params) > 1 || slices.ContainsFunc(params, replies) {
		b.Queue(dbgen.LockSessions, column(params, func(p *dbgen.CheckpointParams) string { return p.Skey }))
	}
}

func checkpointParams(cp *store.Checkpoint) (dbgen.CheckpointParams, error) {
	msgs, err := messagesJSON(cp.Messages)
	if err != nil {
		return dbgen.CheckpointParams{}, err
	}
	calls, err := toolCallsJSON(cp.ToolCalls)
	if err != nil {
		return dbgen.CheckpointParams{}, err
	}
	if slices.ContainsFunc(cp.Replies, func(r store.NewReply) bool { return r.DKey == "" }) {
		return dbgen.CheckpointParams{}, rejected("reply without a dkey")
	}
	replies, err := repliesJSON(cp.Replies)
	if err != nil {
		return dbgen.CheckpointParams{}, err
	}
	return dbgen.CheckpointParams{
		Skey: cp.SKey, Gen: cp.Gen, RunID: cp.RunID, Owner: cp.Owner, RunGen: cp.RunGen,
		Messages: msgs, ToolCalls: calls, Taken: append([]int64{}, cp.Taken...), Replies: replies, Settled: allRead(cp.Replies),
	}, nil
}
