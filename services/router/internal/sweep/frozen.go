package sweep

import (
	"context"
	"time"
)

// frozenAge is how long a transaction may wait for its client.
const frozenAge = 10 * time.Second

// endFrozen is rule (h): database sessions of processes that froze in the middle of a transaction, and hold rows.
func (s *Sweeper) endFrozen(ctx context.Context, _ []int) (int, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := s.Store.EndFrozen(call, frozenAge)
	if n > 0 {
		s.Logger.WarnContext(ctx, "sweep: database sessions of frozen processes ended", "count", n)
	}
	return n, err
}
