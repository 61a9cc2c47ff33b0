package sweep

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// ringRuns is rule (a): queued runs that are older than minAge and held by nobody. The age numbers the ring, so that a
// backlog is not flooded. Runs of a tenant that has enough of them are left out by the dispatcher.
func (s *Sweeper) ringRuns(ctx context.Context, owned []int) (rung int, err error) {
	for range maxPages {
		page, err := s.queuedPage(ctx, owned)
		if err != nil {
			return rung, err
		}
		if runs := s.unheld(ctx, page); len(runs) > 0 {
			s.Doorbells.Publish(ctx, runs, nil)
			rung += len(runs)
		}
		if s.queued == "" {
			break
		}
	}
	return rung, nil
}

func (s *Sweeper) queuedPage(ctx context.Context, owned []int) ([]store.QueuedRun, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, next, err := s.Store.QueuedRuns(ctx, owned, s.redis.minAge(time.Now()), s.queued, pageSize)
	s.queued = next // "" after an error: begin again
	return page, err
}

// unheld returns the doorbells of the runs that no lease of their generation holds.
func (s *Sweeper) unheld(ctx context.Context, page []store.QueuedRun) []dispatch.Run {
	held := s.lookup(ctx, column(page, func(r store.QueuedRun) string { return r.SKey }))
	var runs []dispatch.Run
	for i, r := range page {
		switch {
		case held == nil && r.Age < cautiousAge:
		case held != nil && held[i] != nil && held[i].Gen >= r.Gen:
		default:
			runs = append(runs, dispatch.Run{SKey: r.SKey, Tenant: r.Tenant, Class: r.RunClass, Gen: r.Gen, RunID: r.RunID, N: bucket(r.Age)})
		}
	}
	return runs
}

// lookup returns the leases of sessions, nil if Redis did not answer.
func (s *Sweeper) lookup(ctx context.Context, skeys []string) []*lease.Lease {
	if s.redis.down || len(skeys) == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held, err := s.Leases.Lookup(call, skeys)
	if err != nil {
		s.redisDown(ctx, err)
		return nil
	}
	return held
}

func column[T, V any](rows []T, value func(T) V) []V {
	values := make([]V, len(rows))
	for i, row := range rows {
		values[i] = value(row)
	}
	return values
}
