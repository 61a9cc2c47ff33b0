package sweep

import (
	"context"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// settleGaps is rule (e): settled rows over which nobody has moved the position of their session. It counts the rows
// that come next.
func (s *Sweeper) settleGaps(ctx context.Context, owned []int) (int, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	next, err := s.Store.SettleGaps(call, owned, pageSize)
	if len(next) > 0 {
		s.Doorbells.Publish(ctx, nil, column(next, deliveryBehind))
	}
	return len(next), err
}

// deliveryBehind numbers the ring of a row behind a gap apart from those of ringDeliveries: these came too early, egress
// has dropped them, and the broker would drop a repetition.
func deliveryBehind(d store.Doorbell) dispatch.Delivery {
	bell := delivery(d)
	bell.N = -1 - bell.N
	return bell
}
