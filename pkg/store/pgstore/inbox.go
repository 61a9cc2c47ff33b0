package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Offsets implements store.Inbox.
func (s *Store) Offsets(ctx context.Context, partitions []int) ([]store.Offset, error) {
	rows, err := bounded(ctx, s.queries.GetOffsets, column(partitions, func(p *int) int32 { return int32(*p) }))
	if err != nil {
		return nil, wrap("read offsets", err)
	}
	return column(rows, func(r *dbgen.GetOffsetsRow) store.Offset {
		return store.Offset{
			Partition: int(r.Part), Stream: r.Stream, StreamCreated: utc(r.StreamCreated),
			LastSeq: r.LastSeq, LastUID: r.LastUid.String, LastAt: utc(r.LastTs),
		}
	}), nil
}

// SetOffset implements store.Inbox.
func (s *Store) SetOffset(ctx context.Context, old *store.Offset, next store.Offset) error {
	create := dbgen.CreateOffsetParams{
		Part: int32(next.Partition), Stream: next.Stream, StreamCreated: timestamp(next.StreamCreated),
		LastSeq: next.LastSeq, LastUid: pgtype.Text{String: next.LastUID, Valid: true}, LastTs: timestamp(next.LastAt),
	}
	var n int64
	var err error
	if old == nil {
		n, err = bounded(ctx, s.queries.CreateOffset, create)
	} else {
		n, err = bounded(ctx, s.queries.ReplaceOffset, dbgen.ReplaceOffsetParams{
			Part: create.Part, Stream: create.Stream, StreamCreated: create.StreamCreated,
			LastSeq: create.LastSeq, LastUid: create.LastUid, LastTs: create.LastTs,
			OldStream: old.Stream, OldStreamCreated: timestamp(old.StreamCreated), OldLastSeq: old.LastSeq,
		})
	}
	if err == nil && n == 0 {
		return &store.OffsetMovedError{Partitions: []int{next.Partition}}
	}
	return wrap("set offset", err)
}

// utc is the zero time for NULL.
func utc(t pgtype.Timestamptz) time.Time { return t.Time.UTC() }

// timestamp is NULL for the zero time.
func timestamp(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}
