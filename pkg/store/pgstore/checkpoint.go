package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Checkpoint implements store.Runs. If content of one of several is refused, the others are still stored; the error
// remains, and the caller finds out whose it is by repeating them one by one.
func (s *Store) Checkpoint(ctx context.Context, cps []store.Checkpoint) ([]store.CheckpointResult, error) {
	params := make([]dbgen.CheckpointParams, len(cps))
	for i := range cps {
		var err error
		if params[i], err = checkpointParams(&cps[i]); err != nil {
			return nil, wrap("checkpoint", err)
		}
	}
	results, err := s.checkpoint(ctx, params)
	if len(params) == 1 || !errors.Is(err, store.ErrRejected) {
		return results, err
	}
	var all []error
	for i := range params {
		one, err := s.checkpoint(ctx, params[i:i+1])
		results, all = append(results, one...), append(all, err)
	}
	return results, errors.Join(all...)
}

// checkpoint sends T3s as one pipeline; an error writes nothing.
func (s *Store) checkpoint(ctx context.Context, params []dbgen.CheckpointParams) ([]store.CheckpointResult, error) {
	results := make([]store.CheckpointResult, len(params))
	err := send(ctx, s.sync, "checkpoint", func(b *pgx.Batch) {
		if len(params) > 1 {
			b.Queue(dbgen.LockSessions, column(params, func(p *dbgen.CheckpointParams) string { return p.Skey }))
		}
		for i := range params {
			results[i] = store.CheckpointResult{Err: store.ErrFenced}
			queue(b, dbgen.Checkpoint, params[i], func(r dbgen.CheckpointRow) {
				results[i] = store.CheckpointResult{
					Signals: store.Signals{LastSeq: r.LastSeq, CtlSeq: r.CtlSeq, StopRun: r.StopRun.UUID},
				}
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
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
	return dbgen.CheckpointParams{
		Skey: cp.SKey, Gen: cp.Gen, RunID: cp.RunID, Owner: cp.Owner, RunGen: cp.RunGen,
		Messages: msgs, ToolCalls: calls, Taken: cp.Taken,
	}, nil
}
