package pgstore

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Claim implements store.Runs. The inbox and the tool ledger are read by later statements of the same pipeline, so that
// they see what the claim saw.
func (s *Store) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claimed, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	var found claims
	err := send(ctx, s.async, "claim runs", func(b *pgx.Batch) {
		found = claims{inbox: map[string][]store.InboxRow{}, calls: map[uuid.UUID][]store.ToolCall{}}
		queueClaim(b, reqs, &found)
	})
	if err != nil {
		return nil, err
	}
	return column(found.runs, found.claimed), nil
}

// claims is what the three statements return.
type claims struct {
	runs  []dbgen.ClaimBatchRow
	inbox map[string][]store.InboxRow
	calls map[uuid.UUID][]store.ToolCall
}

func queueClaim(b *pgx.Batch, reqs []store.ClaimRequest, found *claims) {
	claim := dbgen.ClaimBatchParams{
		Skeys:  column(reqs, func(r *store.ClaimRequest) string { return r.SKey }),
		Gens:   column(reqs, func(r *store.ClaimRequest) int64 { return r.Gen }),
		RunIds: column(reqs, func(r *store.ClaimRequest) uuid.UUID { return r.RunID }),
		Owners: column(reqs, func(r *store.ClaimRequest) string { return r.Owner }),
		Pins:   column(reqs, func(r *store.ClaimRequest) []byte { return jsonb(r.Pins) }),
	}
	queue(b, dbgen.ClaimBatch, claim, func(r dbgen.ClaimBatchRow) { found.runs = append(found.runs, r) })
	inbox := dbgen.ClaimedInboxParams{Skeys: claim.Skeys, Owners: claim.Owners}
	queue(b, dbgen.ClaimedInbox, inbox, func(r dbgen.ClaimedInboxRow) {
		found.inbox[r.Skey] = append(found.inbox[r.Skey], store.InboxRow{
			Seq: r.Seq, UID: r.MsgUid, Kind: store.InboxKind(r.Kind), Body: r.Body, Group: r.Grp.String, RunID: r.RunID.UUID,
			Traceparent: r.Traceparent.String,
		})
	})
	calls := struct{ RunIDs []uuid.UUID }{claim.RunIds}
	queue(b, dbgen.ClaimedToolCalls, calls, func(r dbgen.ClaimedToolCallsRow) {
		found.calls[r.RunID] = append(found.calls[r.RunID], store.ToolCall{
			CallID: r.CallID, Name: r.Name, Effect: r.Effect, State: store.ToolState(r.State), Result: r.Result,
		})
	})
}

func (c *claims) claimed(r *dbgen.ClaimBatchRow) store.Claimed {
	return store.Claimed{
		Fence:  store.Fence{SKey: r.Skey, Gen: r.Gen, RunID: r.RunID.UUID, Owner: r.Owner.String},
		Tenant: r.Tenant, SessionID: r.SessionID, AgentID: r.AgentID,
		DoneSeq: r.DoneSeq, LastSeq: r.LastSeq, CtlSeq: r.CtlSeq, StopRun: r.StopRun.UUID, Attempt: int(r.Attempt),
		FirstGen: r.FirstGen, Attempts: int(r.Attempts), Pins: r.Pins, OutSeq: r.OutSeq,
		Inbox: c.inbox[r.Skey], ToolCalls: c.calls[r.RunID.UUID],
	}
}

// Heartbeat implements store.Runs.
func (s *Store) Heartbeat(ctx context.Context, w store.WorkerBeat) error {
	_, err := bounded(ctx, s.queries.Heartbeat, dbgen.HeartbeatParams{
		WorkerID: w.WorkerID, Boot: w.Boot, Slots: int32(w.Slots), Used: int32(w.Used), Draining: w.Draining,
	})
	return wrap("heartbeat", err)
}
