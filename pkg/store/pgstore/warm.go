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

// AdmitMessage and EnsureSession are left out: they have no form that writes nothing.
func warmAsync(b *pgx.Batch) {
	b.Queue(dbgen.AdmitOffsets, spread(offsetParams(nil))...)
	b.Queue(dbgen.LockSessions, []string{})
	b.Queue(dbgen.AdmitBatch, spread(admitBatchParams(nil))...)
	b.Queue(dbgen.AdmitReset, spread(dbgen.AdmitResetParams{Items: []string{}})...)
	b.Queue(dbgen.AdmitEdit, spread(dbgen.AdmitEditParams{})...)
	queueClaim(b, nil, &claims{})
	b.Queue(dbgen.ClaimDeliveries, spread(claimDeliveriesParams("", nil))...)
}

// warmSync addresses the session "", which does not exist, where a statement has no set form.
func warmSync(b *pgx.Batch) {
	b.Queue(dbgen.LockSessions, []string{})
	nothing := []byte("[]")
	b.Queue(dbgen.Checkpoint, spread(dbgen.CheckpointParams{Replies: nothing, Messages: nothing, ToolCalls: nothing, Taken: []int64{}})...)
	b.Queue(dbgen.Handover, spread(dbgen.HandoverParams{Replies: nothing, Messages: nothing, ToolCalls: nothing, Taken: []int64{}})...)
	b.Queue(dbgen.FinishBatch, spread(finishBatchParams(nil))...)
	b.Queue(dbgen.Finish, spread(dbgen.FinishParams{Messages: nothing, Replies: nothing})...)
	b.Queue(dbgen.Suspend, spread(dbgen.SuspendParams{Replies: nothing, Messages: nothing, ToolCalls: nothing, Taken: []int64{}})...)
	b.Queue(dbgen.Reclaim, spread(reclaimParams(nil))...)
	b.Queue(dbgen.StopQueued, spread(dbgen.StopQueuedParams{Replies: nothing})...)
	b.Queue(dbgen.MarkDeliveries, spread(markParams(nil))...)
	b.Queue(dbgen.RecordPart, spread(dbgen.RecordPartParams{})...)
	b.Queue(dbgen.History, spread(dbgen.HistoryParams{})...)
	b.Queue(dbgen.GetSubmission, spread(dbgen.GetSubmissionParams{})...)
	b.Queue(dbgen.InboxAfter, spread(dbgen.InboxAfterParams{})...)
	b.Queue(dbgen.FindInbox, spread(dbgen.FindInboxParams{})...)
	b.Queue(dbgen.KnownItems, spread(dbgen.KnownItemsParams{Uids: []string{}})...)
	b.Queue(dbgen.ResolveAliases, spread(resolveAliasesParams(nil))...)
	b.Queue(dbgen.Previews, spread(dbgen.PreviewsParams{})...)
	b.Queue(dbgen.ForgetPreviews, spread(dbgen.ForgetPreviewsParams{})...)
}
