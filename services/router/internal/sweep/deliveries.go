package sweep

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// ringDeliveries is rule (d): outbox rows that are due and claimed by nobody. The ring of an unclaimed row repeats the
// first one, which the broker drops if that one arrived.
func (s *Sweeper) ringDeliveries(ctx context.Context, _ []int) (rung int, err error) {
	if s.store.resting(time.Now()) {
		return 0, nil
	}
	for range maxPages {
		due, err := s.due(ctx)
		if err != nil {
			return rung, err
		}
		if len(due) > 0 {
			s.Doorbells.Publish(ctx, nil, column(due, delivery))
			rung += len(due)
		}
		if len(due) < pageSize {
			break
		}
	}
	return rung, nil
}

func (s *Sweeper) due(ctx context.Context) ([]store.Doorbell, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.Store.DueDeliveries(ctx, pageSize)
}

func delivery(d store.Doorbell) dispatch.Delivery {
	return dispatch.Delivery{SKey: d.SKey, Platform: d.Platform, OutSeq: d.OutSeq, N: int64(d.Attempts)}
}
