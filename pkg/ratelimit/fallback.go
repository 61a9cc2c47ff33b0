package ratelimit

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// retryShared is how long a limiter that did not answer is not asked again: each try may cost its timeout.
const retryShared = time.Second

// Fallback returns a limiter that takes from shared, and from local while shared is unavailable.
func Fallback(shared, local Limiter) Limiter { return &fallback{shared: shared, local: local} }

type fallback struct {
	shared, local Limiter
	// since is when shared was last found unavailable, nil if its last answer was one.
	since atomic.Pointer[time.Time]
}

// Take implements Limiter.
func (f *fallback) Take(ctx context.Context, group string, buckets ...Bucket) (time.Duration, error) {
	if f.down() {
		return f.local.Take(ctx, group, buckets...)
	}
	wait, err := f.shared.Take(ctx, group, buckets...)
	if f.note(ctx, err) {
		return f.local.Take(ctx, group, buckets...)
	}
	return wait, err
}

// Freeze implements Limiter. It closes the local bucket too: what a platform asks for holds without Redis as well.
func (f *fallback) Freeze(ctx context.Context, group, key string, d time.Duration) error {
	if err := f.local.Freeze(ctx, group, key, d); err != nil || f.down() {
		return err
	}
	err := f.shared.Freeze(ctx, group, key, d)
	if f.note(ctx, err) {
		return nil
	}
	return err
}

func (f *fallback) down() bool {
	since := f.since.Load()
	return since != nil && time.Since(*since) < retryShared
}

// note remembers whether shared has answered, and reports that it has not. That a caller gave up says nothing of it.
func (f *fallback) note(ctx context.Context, err error) (unavailable bool) {
	if !errors.Is(err, ErrUnavailable) {
		f.since.Store(nil)
		return false
	}
	if ctx.Err() == nil {
		now := time.Now()
		f.since.Store(&now)
	}
	return true
}
