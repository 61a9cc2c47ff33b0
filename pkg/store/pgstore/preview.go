package pgstore

import (
	"context"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// NotePreview implements store.Outbox.
func (s *Store) NotePreview(ctx context.Context, skey string, runID uuid.UUID, platformID, egress string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return wrap("note preview", s.queries.NotePreview(ctx, dbgen.NotePreviewParams{
		Skey: skey, RunID: runID, PlatformID: platformID, Egress: egress,
	}))
}

// Previews implements store.Outbox.
func (s *Store) Previews(ctx context.Context, skey string, runID uuid.UUID) ([]string, error) {
	ids, err := bounded(ctx, s.queries.Previews, dbgen.PreviewsParams{Skey: skey, RunID: runID})
	return ids, wrap("read previews", err)
}

// ForgetPreviews implements store.Outbox.
func (s *Store) ForgetPreviews(ctx context.Context, skey string, runID uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return wrap("forget previews", s.queries.ForgetPreviews(ctx, dbgen.ForgetPreviewsParams{Skey: skey, RunID: runID}))
}
