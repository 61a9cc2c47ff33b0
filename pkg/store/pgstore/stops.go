package pgstore

import (
	"context"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Stops implements store.Runs.
func (s *Store) Stops(ctx context.Context, fences []store.Fence) ([]store.StopState, error) {
	if len(fences) == 0 {
		return nil, nil
	}
	rows, err := bounded(ctx, s.queries.Stops, dbgen.StopsParams{
		Skeys:  column(fences, func(f *store.Fence) string { return f.SKey }),
		Gens:   column(fences, func(f *store.Fence) int64 { return f.Gen }),
		RunIds: column(fences, func(f *store.Fence) uuid.UUID { return f.RunID }),
		Owners: column(fences, func(f *store.Fence) string { return f.Owner }),
	})
	if err != nil {
		return nil, wrap("read stops", err)
	}
	held := make(map[store.Fence]store.StopState, len(rows))
	for _, r := range rows {
		fence := store.Fence{SKey: r.Skey, Gen: r.Gen, RunID: r.RunID.UUID, Owner: r.Owner.String}
		held[fence] = store.StopState{StopRun: r.StopRun.UUID, Held: true}
	}
	return column(fences, func(f *store.Fence) store.StopState { return held[*f] }), nil
}
