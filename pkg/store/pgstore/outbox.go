package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// ClaimDeliveries implements store.Outbox.
func (s *Store) ClaimDeliveries(ctx context.Context, sender string, claims []store.DeliveryClaim) ([]store.Delivery, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var out []store.Delivery
	err := send(ctx, s.async, "claim deliveries", func(b *pgx.Batch) {
		out = nil
		queue(b, dbgen.ClaimDeliveries, claimDeliveriesParams(sender, claims), func(r dbgen.ClaimDeliveriesRow) {
			out = append(out, delivery(&r))
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func claimDeliveriesParams(sender string, claims []store.DeliveryClaim) dbgen.ClaimDeliveriesParams {
	return dbgen.ClaimDeliveriesParams{
		Sender:  sender,
		Skeys:   column(claims, func(c *store.DeliveryClaim) string { return c.SKey }),
		OutSeqs: column(claims, func(c *store.DeliveryClaim) int64 { return c.OutSeq }),
		Sents:   column(claims, func(c *store.DeliveryClaim) int64 { return c.Sent }),
	}
}

func delivery(r *dbgen.ClaimDeliveriesRow) store.Delivery {
	return store.Delivery{
		SKey: r.Skey, OutSeq: r.OutSeq, Tenant: r.Tenant, DKey: r.Dkey, RunID: r.RunID.UUID, Platform: r.Platform,
		Target: r.Target, Parts: r.Parts, Attempts: int(r.Attempts), Maybe: int(r.Maybe),
		Plan: r.Plan, SentParts: int(r.SentParts), PlatformIDs: r.PlatformIds,
		CreatedAt: utc(r.CreatedAt), Traceparent: r.Traceparent.String,
	}
}

// RecordPart implements store.Outbox.
func (s *Store) RecordPart(ctx context.Context, p store.PartSent) error {
	n, err := bounded(ctx, s.queries.RecordPart, dbgen.RecordPartParams{
		Skey: p.SKey, OutSeq: p.OutSeq, Sender: p.Sender,
		SentParts: int32(p.SentParts), PlatformIds: jsonb(p.PlatformIDs), Plan: jsonb(p.Plan),
	})
	return fenced("record part", n, err)
}

// RetryDelivery implements store.Outbox.
func (s *Store) RetryDelivery(
	ctx context.Context, skey string, outSeq int64, sender string, after time.Duration, maybe bool,
) error {
	n, err := bounded(ctx, s.queries.RetryDelivery, dbgen.RetryDeliveryParams{
		Skey: skey, OutSeq: outSeq, Sender: sender, AfterUs: after.Microseconds(), Maybe: maybe,
	})
	return fenced("retry delivery", n, err)
}

// fenced turns no row of a conditional write into an error.
func fenced(doing string, rows int64, err error) error {
	if err == nil && rows == 0 {
		err = store.ErrFenced
	}
	return wrap(doing, err)
}

// MarkDeliveries implements store.Outbox. If one of several is refused, the others are still marked; the error remains.
func (s *Store) MarkDeliveries(ctx context.Context, marks []store.Mark) ([]store.Marked, error) {
	if len(marks) == 0 {
		return nil, nil
	}
	out, err := s.mark(ctx, marks)
	if len(marks) == 1 || !errors.Is(err, store.ErrRejected) {
		return out, err
	}
	var all []error
	for i := range marks {
		one, err := s.mark(ctx, marks[i:i+1])
		out, all = append(out, one...), append(all, err)
	}
	return out, errors.Join(all...)
}

func (s *Store) mark(ctx context.Context, marks []store.Mark) ([]store.Marked, error) {
	for i := range marks {
		if marks[i].State == store.OutDead && marks[i].LetterID == uuid.Nil {
			return nil, wrap("mark deliveries", rejected("dead delivery without the id of its letter"))
		}
	}
	var out []store.Marked
	err := send(ctx, s.sync, "mark deliveries", func(b *pgx.Batch) {
		out = nil
		queue(b, dbgen.MarkDeliveries, markParams(marks), func(r dbgen.MarkDeliveriesRow) {
			out = append(out, store.Marked{SKey: r.Skey, OutSeq: r.OutSeq, OutSent: r.OutSent})
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func markParams(marks []store.Mark) dbgen.MarkDeliveriesParams {
	return dbgen.MarkDeliveriesParams{
		Skeys:       column(marks, func(m *store.Mark) string { return m.SKey }),
		OutSeqs:     column(marks, func(m *store.Mark) int64 { return m.OutSeq }),
		States:      column(marks, func(m *store.Mark) string { return string(m.State) }),
		PlatformIds: column(marks, func(m *store.Mark) []byte { return jsonb(m.PlatformIDs) }),
		Reasons:     column(marks, func(m *store.Mark) string { return m.Reason }),
		LetterIds:   column(marks, func(m *store.Mark) uuid.UUID { return m.LetterID }),
	}
}
