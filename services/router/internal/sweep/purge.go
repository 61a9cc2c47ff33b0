package sweep

import "context"

const (
	// purgeEvery sweeps old rows are looked for; while there are more of them, every sweep.
	purgeEvery = 60
	// purgeLimit bounds the rows of a kind that are removed at once.
	purgeLimit = 1000
)

// purge removes rows that nobody has needed for longer than the retention.
func (s *Sweeper) purge(ctx context.Context, _ []int) (int, error) {
	if s.Retention <= 0 || !s.purging && s.sweeps%purgeEvery != 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	removed, err := s.Store.Purge(call, s.Retention, purgeLimit)
	s.purging = err == nil && removed >= purgeLimit
	return removed, err
}
