package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/ratelimit/ratelimittest"
)

// flaky is a limiter that may be down.
type flaky struct {
	ratelimit.Limiter
	down  bool
	err   error
	calls int
}

func (f *flaky) state() error {
	f.calls++
	if f.down {
		return fmt.Errorf("take: %w", ratelimit.ErrUnavailable)
	}
	return f.err
}

func (f *flaky) Take(ctx context.Context, group string, buckets ...ratelimit.Bucket) (time.Duration, error) {
	if err := f.state(); err != nil {
		return 0, err
	}
	return f.Limiter.Take(ctx, group, buckets...)
}

func (f *flaky) Freeze(ctx context.Context, group, key string, d time.Duration) error {
	if err := f.state(); err != nil {
		return err
	}
	return f.Limiter.Freeze(ctx, group, key, d)
}

func TestFallback_PassesTheSuiteEitherWay(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprint("down ", down), func(t *testing.T) {
			t.Parallel()
			ratelimittest.Run(t, func(*testing.T) ratelimittest.Backend {
				c := newClock()
				var shared ratelimit.Limiter = c.local()
				if down {
					shared = unavailable{}
				}
				return ratelimittest.Backend{Limiter: ratelimit.Fallback(shared, c.local()), Advance: c.advance}
			})
		})
	}
}

type unavailable struct{}

func (unavailable) Take(context.Context, string, ...ratelimit.Bucket) (time.Duration, error) {
	return 0, ratelimit.ErrUnavailable
}

func (unavailable) Freeze(context.Context, string, string, time.Duration) error {
	return ratelimit.ErrUnavailable
}

func one(key string) ratelimit.Bucket { return ratelimit.Bucket{Key: key, Rate: 0.001, Burst: 1} }

func TestFallback_GoesOnLocallyAndAsksTheSharedOneAgainLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &flaky{Limiter: ratelimit.NewLocal()}
		l := ratelimit.Fallback(shared, ratelimit.NewLocal())
		take := func() time.Duration {
			wait, err := l.Take(t.Context(), "g", one("a"))
			require.NoError(t, err)
			return wait
		}
		require.Zero(t, take())
		require.Positive(t, take(), "the shared bucket is empty")

		shared.down = true
		require.Zero(t, take(), "the local one is full")
		require.Positive(t, take())
		require.Equal(t, 3, shared.calls, "not asked again at once")

		shared.down = false
		<-time.After(ratelimit.RetryShared)
		require.Positive(t, take())
		require.Equal(t, 4, shared.calls)
	})
}

func TestFallback_FreezesHoldWithoutTheSharedOne(t *testing.T) {
	t.Parallel()
	shared := &flaky{Limiter: ratelimit.NewLocal()}
	l := ratelimit.Fallback(shared, ratelimit.NewLocal())
	require.NoError(t, l.Freeze(t.Context(), "g", "a", time.Hour))
	shared.down = true
	wait, err := l.Take(t.Context(), "g", one("a"))
	require.NoError(t, err)
	require.Positive(t, wait)
	require.NoError(t, l.Freeze(t.Context(), "g", "b", time.Hour))
	wait, err = l.Take(t.Context(), "g", one("b"))
	require.NoError(t, err)
	require.Positive(t, wait)
}

func TestFallback_ReturnsOtherErrors(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	l := ratelimit.Fallback(&flaky{err: boom}, ratelimit.NewLocal())
	_, err := l.Take(t.Context(), "g", one("a"))
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, l.Freeze(t.Context(), "g", "a", time.Hour), boom)
}

func TestFallback_ACallerThatGivesUpDoesNotCloseTheSharedOne(t *testing.T) {
	t.Parallel()
	shared := &flaky{Limiter: ratelimit.NewLocal(), down: true}
	l := ratelimit.Fallback(shared, ratelimit.NewLocal())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Take(ended, "g", one("a"))
	require.NoError(t, err)
	_, err = l.Take(t.Context(), "g", one("b"))
	require.NoError(t, err)
	require.Equal(t, 2, shared.calls)
}
