package devserver

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/hermes-runtime/hermes/pkg/daemon"
)

// memoryRedis is a Redis in this process. miniredis expires keys only when its clock is moved, so a loop moves it.
type memoryRedis struct {
	server *miniredis.Miniredis
	loops  daemon.Loops
}

const redisTick = 200 * time.Millisecond

func startMemoryRedis(ctx context.Context) (*memoryRedis, error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	r := &memoryRedis{server: m}
	r.loops.Go(ctx, r.tick)
	return r, nil
}

func (r *memoryRedis) url() string { return "redis://" + r.server.Addr() + "/0" }

func (r *memoryRedis) close() error {
	err := r.loops.Stop(context.Background())
	r.server.Close()
	return err
}

func (r *memoryRedis) tick(ctx context.Context) {
	ticker := time.NewTicker(redisTick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.server.FastForward(now.Sub(last))
			last = now
		}
	}
}
