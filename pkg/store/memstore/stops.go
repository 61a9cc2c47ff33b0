package memstore

import (
	"context"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Stops implements store.Runs.
func (s *Store) Stops(ctx context.Context, fences []store.Fence) ([]store.StopState, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read stops: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]store.StopState, len(fences))
	for i, f := range fences {
		if r := s.sessions[f.SKey]; r.holds(f) {
			out[i] = store.StopState{StopRun: r.StopRun, Held: true}
		}
	}
	return out, nil
}
