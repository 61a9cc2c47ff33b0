package sweep

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// staleStop is how long a stopped run may go on before the sweeper ends it.
const staleStop = 10 * time.Second

// endStops is rule (f): stopped runs that nobody has ended.
func (s *Sweeper) endStops(ctx context.Context, owned []int) (int, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stops, err := s.Store.StaleStops(call, owned, staleStop, pageSize)
	if err != nil {
		return 0, err
	}
	return len(stops), each(stops, func(stop store.StaleStop) error { return s.Ender.EndStale(ctx, stop) })
}
