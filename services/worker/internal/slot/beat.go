package slot

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	beatEvery   = 5 * time.Second
	beatTimeout = 4 * time.Second
)

// beat tells the store that the worker lives: at once, then every 5 s and when a drain begins, until the last run has
// ended.
func (p *Puller) beat(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		p.beatOnce(ctx)
		select {
		case <-ticker.C:
		case <-p.drained:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Puller) beatOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	err := p.Store.Heartbeat(ctx, store.WorkerBeat{
		WorkerID: p.cfg.WorkerID, Boot: p.boot, Slots: p.cfg.Slots, Used: p.room.used(), Draining: p.reached(leaving),
	})
	if err != nil && ctx.Err() == nil {
		p.Logger.WarnContext(ctx, "heartbeat", "worker_id", p.cfg.WorkerID, "err", err)
	}
}
