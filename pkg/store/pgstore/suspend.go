package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Suspend implements store.Runs.
func (s *Store) Suspend(ctx context.Context, ss []store.Suspension) ([]store.SuspendResult, error) {
	cps := column(ss, func(s *store.Suspension) store.Checkpoint { return s.Checkpoint })
	at := 0 // where the parameters of a call begin: all of them, or one after the other
	return eachOrAll("suspend", cps, func(params []dbgen.CheckpointParams) ([]store.SuspendResult, error) {
		if len(params) < len(ss) {
			defer func() { at++ }()
		}
		results := make([]store.SuspendResult, len(params))
		err := send(ctx, s.sync, "suspend", func(b *pgx.Batch) {
			lockSessions(b, params)
			for i := range params {
				results[i] = store.SuspendResult{Err: store.ErrFenced}
				queue(b, dbgen.Suspend, suspendParams(&ss[at+i], params[i]), func(r dbgen.SuspendRow) {
					results[i] = store.SuspendResult{Gen: r.Gen, State: store.SessionState(r.State), FirstOut: r.FirstOut}
				})
			}
		})
		return results, err
	})
}

func suspendParams(s *store.Suspension, cp dbgen.CheckpointParams) dbgen.SuspendParams {
	return dbgen.SuspendParams{
		Replies: cp.Replies, Skey: cp.Skey, WaitKind: string(s.Kind), Seen: s.Seen,
		WakeAt:  pgtype.Timestamptz{Time: s.WakeAt, Valid: !s.WakeAt.IsZero()},
		Settled: cp.Settled, Gen: cp.Gen, RunID: cp.RunID, Owner: cp.Owner, RunGen: cp.RunGen, Messages: cp.Messages,
		ToolCalls: cp.ToolCalls, Taken: cp.Taken,
	}
}
