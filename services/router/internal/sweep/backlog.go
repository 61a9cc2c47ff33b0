package sweep

import (
	"context"
	"math"

	"github.com/hermes-runtime/hermes/services/router/internal/partition"
)

const (
	// countEvery sweeps the backlog is counted.
	countEvery = 5
	// utilisation is the share of its slots that a worker should fill.
	utilisation = 0.75
)

// countBacklog measures the cluster for those who scale it. It finds nothing that was left behind.
func (s *Sweeper) countBacklog(ctx context.Context, _ []int) (int, error) {
	if s.sweeps%countEvery != 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	running, queued, err := s.Store.Backlog(call, partition.All())
	if err == nil {
		s.metrics.backlog(ctx, running, queued, s.Slots)
	}
	return 0, err
}

func workersWanted(running, queued, slots int) int64 {
	return int64(math.Ceil(float64(running+queued) / (float64(slots) * utilisation)))
}
