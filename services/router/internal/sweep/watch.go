package sweep

import (
	"context"
	"time"
)

// storeWatch notices when the store comes back.
type storeWatch struct {
	down      bool
	restUntil time.Time
}

// note returns whether the store went down or came back.
func (w *storeWatch) note(down bool, now time.Time) (edge bool) {
	edge = down != w.down
	if edge && !down {
		w.restUntil = now.Add(storeRest)
	}
	w.down = down
	return edge
}

func (w *storeWatch) resting(now time.Time) bool { return now.Before(w.restUntil) }

// redisWatch notices when Redis is down and when it has lost its data.
type redisWatch struct {
	down          bool
	boot          string
	cautiousUntil time.Time
}

// note takes the identity of Redis' data; lost: it is not the one that was there before.
func (w *redisWatch) note(boot string, now time.Time) (lost bool) {
	lost = w.boot != "" && boot != w.boot
	if lost {
		w.cautiousUntil = now.Add(cautiousAge)
	}
	w.boot = boot
	return lost
}

// minAge is the age from which a queued run is rung.
func (w *redisWatch) minAge(now time.Time) time.Duration {
	if w.down || now.Before(w.cautiousUntil) {
		return cautiousAge
	}
	return minAge
}

func (s *Sweeper) watchRedis(ctx context.Context) {
	boot, err := s.boot(ctx)
	if err != nil {
		s.redisDown(ctx, err)
		return
	}
	if s.redis.down {
		s.redis.down = false
		s.Logger.InfoContext(ctx, "sweep: redis available again")
	}
	if s.redis.note(boot, time.Now()) {
		s.Logger.WarnContext(ctx, "sweep: redis lost its data", "wait", cautiousAge)
	}
}

func (s *Sweeper) boot(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.Leases.Boot(ctx)
}

func (s *Sweeper) redisDown(ctx context.Context, err error) {
	if !s.redis.down && ctx.Err() == nil { // else: stopping
		s.Logger.WarnContext(ctx, "sweep: redis unavailable", "err", err)
	}
	s.redis.down = true
}
