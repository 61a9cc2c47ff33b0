package ratelimit

import (
	"context"
	"sync"
	"time"
)

// sweepAt is how many buckets are kept before those that are full again are forgotten, maxBuckets how many in all.
const (
	sweepAt    = 1024
	maxBuckets = 1 << 17
)

// Local keeps the rates of one process in memory.
type Local struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[name]state
	// sweep is the number of buckets at which the full ones are forgotten.
	sweep int
}

var _ Limiter = (*Local)(nil)

type name struct{ group, key string }

// state of a bucket that is not full.
type state struct {
	// full is the moment at which it is full again, frozen the one up to which nobody takes.
	full, frozen time.Time
}

// NewLocal returns a limiter whose buckets are all full.
func NewLocal() *Local { return NewLocalAt(time.Now) }

// NewLocalAt is NewLocal with a clock.
func NewLocalAt(now func() time.Time) *Local {
	return &Local{now: now, buckets: map[name]state{}, sweep: sweepAt}
}

// Take implements Limiter.
func (l *Local) Take(_ context.Context, group string, buckets ...Bucket) (time.Duration, error) {
	for _, b := range buckets {
		if err := b.Validate(); err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var wait time.Duration
	for _, b := range buckets {
		wait = max(wait, l.buckets[name{group, b.Key}].wait(now, b))
	}
	if wait > 0 {
		return wait, nil
	}
	for _, b := range buckets {
		l.put(now, name{group, b.Key}, l.buckets[name{group, b.Key}].taken(now, b))
	}
	return 0, nil
}

// Freeze implements Limiter.
func (l *Local) Freeze(_ context.Context, group, key string, d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := l.buckets[name{group, key}]
	if until := now.Add(d); until.After(s.frozen) {
		s.frozen = until
		l.put(now, name{group, key}, s)
	}
	return nil
}

// wait is the time after which b has a token, 0 if it has one now.
func (s state) wait(now time.Time, b Bucket) time.Duration {
	empty := s.taken(now, b).full.Sub(now) - time.Duration(b.Burst)*b.Interval()
	return max(empty, s.frozen.Sub(now), 0)
}

// taken is s with one token less.
func (s state) taken(now time.Time, b Bucket) state {
	if s.full.Before(now) {
		s.full = now
	}
	s.full = s.full.Add(b.Interval())
	return s
}

// put stores a bucket.
func (l *Local) put(now time.Time, n name, s state) {
	if len(l.buckets) >= l.sweep {
		l.forget(now)
	}
	l.buckets[n] = s
}

// forget drops the buckets that are full again. Where too many are in use some of them go too, and so are full: memory is
// bounded, rates are hints.
func (l *Local) forget(now time.Time) {
	for n, s := range l.buckets {
		if !s.full.After(now) && !s.frozen.After(now) {
			delete(l.buckets, n)
		}
	}
	for n := range l.buckets {
		if len(l.buckets) <= maxBuckets*7/8 { // not one by one: each time costs a look at all
			break
		}
		delete(l.buckets, n)
	}
	l.sweep = min(max(sweepAt, 2*len(l.buckets)), maxBuckets)
}
