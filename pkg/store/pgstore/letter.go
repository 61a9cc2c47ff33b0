package pgstore

import (
	"context"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// DeadLetters implements store.Operator.
func (s *Store) DeadLetters(ctx context.Context, q store.LetterQuery) ([]store.StoredLetter, error) {
	before := q.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	rows, err := bounded(ctx, s.queries.DeadLetters, dbgen.DeadLettersParams{
		Before: before, Kind: q.Kind, Open: q.Open, MaxRows: limit(q.Limit),
	})
	if err != nil {
		return nil, wrap("list dead letters", err)
	}
	return column(rows, func(r *dbgen.DeadLettersRow) store.StoredLetter {
		return letterOf(&dbgen.DeadLetterRow{
			ID: r.ID, Kind: r.Kind, Ref: r.Ref, Reason: r.Reason, CreatedAt: r.CreatedAt, Replays: r.Replays, ReplayedAt: r.ReplayedAt,
		})
	}), nil
}

func letterOf(r *dbgen.DeadLetterRow) store.StoredLetter {
	return store.StoredLetter{
		DeadLetter: store.DeadLetter{ID: r.ID, Kind: r.Kind, Ref: r.Ref, Reason: r.Reason, Payload: r.Payload},
		CreatedAt:  utc(r.CreatedAt), Replays: int(r.Replays), ReplayedAt: utc(r.ReplayedAt),
	}
}

// DeadLetter implements store.Operator.
func (s *Store) DeadLetter(ctx context.Context, id uuid.UUID) (store.StoredLetter, error) {
	r, err := bounded(ctx, s.queries.DeadLetter, id)
	if err != nil {
		return store.StoredLetter{}, wrap("read dead letter "+id.String(), err)
	}
	return letterOf(&r), nil
}

// CountReplay implements store.Operator.
func (s *Store) CountReplay(ctx context.Context, id uuid.UUID) (store.StoredLetter, error) {
	r, err := bounded(ctx, s.queries.CountReplay, id)
	if err != nil {
		return store.StoredLetter{}, wrap("count replay of dead letter "+id.String(), err)
	}
	return letterOf((*dbgen.DeadLetterRow)(&r)), nil
}
