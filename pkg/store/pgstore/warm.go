package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// prepare runs the hot statements of a pool once on a new connection, over nothing, so that no turn pays for their
// first plan. They write nothing.
func prepare(ctx context.Context, conn *pgx.Conn, warm func(*pgx.Batch)) error {
	var b pgx.Batch
	warm(&b)
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("warm connection: %w", err)
	}
	return nil
}

// AdmitMessage is left out: it has no form that writes nothing.
func warmAsync(b *pgx.Batch) {
	b.Queue(dbgen.AdmitOffsets, spread(offsetParams(nil))...)
	b.Queue(dbgen.LockSessions, []string{})
	b.Queue(dbgen.AdmitBatch, spread(admitBatchParams(nil))...)
	queueClaim(b, nil, &claims{})
	b.Queue(dbgen.ClaimDeliveries, spread(claimDeliveriesParams("", nil))...)
}

// warmSync addresses the session "", which does not exist, where a statement has no set form.
func warmSync(b *pgx.Batch) {
	b.Queue(dbgen.LockSessions, []string{})
	nothing := []byte("[]")
	b.Queue(dbgen.Checkpoint, spread(dbgen.CheckpointParams{Messages: nothing, ToolCalls: nothing, Taken: []int64{}})...)
	b.Queue(dbgen.FinishBatch, spread(finishBatchParams(nil))...)
	b.Queue(dbgen.Finish, spread(dbgen.FinishParams{Messages: nothing, Replies: nothing})...)
	b.Queue(dbgen.MarkDeliveries, spread(markParams(nil))...)
	b.Queue(dbgen.RecordPart, spread(dbgen.RecordPartParams{})...)
	b.Queue(dbgen.History, spread(dbgen.HistoryParams{})...)
	b.Queue(dbgen.GetSubmission, spread(dbgen.GetSubmissionParams{})...)
}
