package sweep

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/lease"
)

const (
	// cautiousAge is the age at which runs are rung while it is not known whether a lease holds them: Redis is down, or
	// lost its data less than cautiousAge ago.
	cautiousAge = 2 * lease.TTL
	// storeRest gives every egress time to mark what it sent, after the store was unreachable.
	storeRest = 10 * time.Second
)

// storeWatch notices when the store goes and comes back.
type storeWatch struct {
	down      bool
	restUntil time.Time
	// sick: the last sweep met no answer; failing: this one has.
	sick, failing bool
}

// failed notes a call without an answer: connections may have been lost and made again. A rule that fails all the time
// does not keep deliveries at rest for ever.
func (w *storeWatch) failed(now time.Time) {
	w.failing = true
	if !w.sick {
		w.restUntil = now.Add(storeRest)
	}
}

func (w *storeWatch) sweepEnded() { w.sick, w.failing = w.failing, false }

func (w *storeWatch) resting(now time.Time) bool { return now.Before(w.restUntil) }

// storeDown asks whether the store is gone altogether.
func (s *Sweeper) storeDown(ctx context.Context) bool {
	err := s.ready(ctx)
	if err == nil {
		return false
	}
	s.store.down = true
	s.Logger.WarnContext(ctx, "sweep: store unavailable", "err", err)
	return true
}

// storeAnswers reports whether there is anything to sweep.
func (s *Sweeper) storeAnswers(ctx context.Context) bool {
	if !s.store.down {
		return true
	}
	if s.ready(ctx) != nil { // it was reported when it went
		return false
	}
	s.store.down, s.store.restUntil = false, time.Now().Add(storeRest)
	s.Logger.InfoContext(ctx, "sweep: store available again", "rest", storeRest)
	return true
}

func (s *Sweeper) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.Store.Ready(ctx)
}

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
	if w.cautious(now) {
		return cautiousAge
	}
	return minAge
}

// cautious: leases say nothing now, because Redis is down or has lost its data.
func (w *redisWatch) cautious(now time.Time) bool { return w.down || now.Before(w.cautiousUntil) }

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
