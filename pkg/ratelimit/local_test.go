package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/ratelimit/ratelimittest"
)

// clock is moved by hand.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) local() *ratelimit.Local {
	return ratelimit.NewLocalAt(func() time.Time { return c.now })
}
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func TestLocal_PassesTheSuite(t *testing.T) {
	t.Parallel()
	ratelimittest.Run(t, func(*testing.T) ratelimittest.Backend {
		c := newClock()
		return ratelimittest.Backend{Limiter: c.local(), Advance: c.advance}
	})
}

func TestLocal_ForgetsBucketsThatAreFullAgain(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := c.local()
	second := func(key string) ratelimit.Bucket { return ratelimit.Bucket{Key: key, Rate: 1, Burst: 1} }
	_, err := l.Take(t.Context(), "g", ratelimit.Bucket{Key: "slow", Rate: 0.001, Burst: 1})
	require.NoError(t, err)
	require.NoError(t, l.Freeze(t.Context(), "g", "frozen", time.Hour))
	for i := range 10 * ratelimit.SweepAt {
		wait, err := l.Take(t.Context(), "g", second(fmt.Sprint(i)))
		require.NoError(t, err)
		require.Zero(t, wait)
		if i%100 == 0 {
			c.advance(time.Second)
		}
	}
	require.LessOrEqual(t, l.Len(), ratelimit.SweepAt)
	for _, key := range []string{"slow", "frozen"} {
		wait, err := l.Take(t.Context(), "g", ratelimit.Bucket{Key: key, Rate: 0.001, Burst: 1})
		require.NoError(t, err)
		require.Positive(t, wait, key)
	}
}

func TestLocal_IsBoundedWhateverIsInUse(t *testing.T) {
	t.Parallel()
	l := newClock().local()
	for i := range ratelimit.MaxBuckets + 1000 {
		require.NoError(t, l.Freeze(t.Context(), "g", fmt.Sprint(i), time.Hour))
	}
	require.LessOrEqual(t, l.Len(), ratelimit.MaxBuckets)
	require.Greater(t, l.Len(), ratelimit.MaxBuckets/2)
}
