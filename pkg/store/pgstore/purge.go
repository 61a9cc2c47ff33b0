package pgstore

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Purge implements store.Sweep: rows that point at others first.
func (s *Store) Purge(ctx context.Context, age time.Duration, limit int) (int, error) {
	us, rows := age.Microseconds(), int32(max(0, limit))
	removed := int64(0)
	for _, kind := range []func() (int64, error){
		func() (int64, error) {
			return bounded(ctx, s.queries.PurgeInbox, dbgen.PurgeInboxParams{AgeUs: us, MaxRows: rows})
		},
		func() (int64, error) {
			return bounded(ctx, s.queries.PurgeOutbox, dbgen.PurgeOutboxParams{AgeUs: us, MaxRows: rows})
		},
		func() (int64, error) {
			return bounded(ctx, s.queries.PurgeRuns, dbgen.PurgeRunsParams{AgeUs: us, MaxRows: rows})
		},
		func() (int64, error) {
			return bounded(ctx, s.queries.PurgeLetters, dbgen.PurgeLettersParams{AgeUs: us, MaxRows: rows})
		},
	} {
		n, err := kind()
		if err != nil {
			return int(removed), wrap("purge", err)
		}
		removed += n
	}
	return int(removed), nil
}
