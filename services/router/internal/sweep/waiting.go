package sweep

import (
	"context"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// wakeLimit bounds the sessions that are woken in one statement.
const wakeLimit = 100

// wake is rule (c): waiting sessions whose time has come.
func (s *Sweeper) wake(ctx context.Context, owned []int) (woken int, err error) {
	for range maxPages {
		page, err := s.wakePage(ctx, owned)
		if err != nil {
			return woken, err
		}
		if len(page) > 0 {
			s.Doorbells.Publish(ctx, page, nil)
			woken += len(page)
		}
		if len(page) < wakeLimit {
			break
		}
	}
	return woken, nil
}

func (s *Sweeper) wakePage(ctx context.Context, owned []int) ([]dispatch.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	fresh := make([]uuid.UUID, wakeLimit)
	for i := range fresh {
		fresh[i] = uuid.Must(uuid.NewV7())
	}
	woken, err := s.Store.WakeDue(ctx, owned, fresh)
	runs := make([]dispatch.Run, len(woken))
	for i, r := range woken {
		runs[i] = dispatch.Run{SKey: r.SKey, Tenant: r.Tenant, Class: r.RunClass, Gen: r.Gen, RunID: r.RunID}
	}
	return runs, err
}
