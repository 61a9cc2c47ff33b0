// Package ratelimittest is the suite that every implementation of ratelimit.Limiter passes.
package ratelimittest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/ratelimit"
)

// Backend is an implementation whose time the suite can move.
type Backend struct {
	ratelimit.Limiter
	// Advance lets d pass. Real time passes as well: the suite uses times that are long beside it.
	Advance func(d time.Duration)
}

// Run checks newBackend, which returns a backend whose buckets are full.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	for name, test := range map[string]func(t *testing.T, b Backend){
		"ABucketIsFullAtFirstAndThenEmpty":       emptied,
		"ABucketGainsOneTokenPerInterval":        refilled,
		"ABucketNeverHoldsMoreThanItsBurst":      capped,
		"ARefusalTakesNothing":                   refusedIsFree,
		"SeveralBucketsAreTakenFromTogether":     together,
		"TheLongestWaitCounts":                   longestWait,
		"GroupsAreSeparate":                      groups,
		"AFreezeClosesABucket":                   frozen,
		"AFreezeThatEndsLaterStands":             laterFreezeStands,
		"AFrozenBucketKeepsItsTokens":            frozenKeepsTokens,
		"AFreezeOfOneBucketLeavesOthersOpen":     freezeIsNarrow,
		"ManyAtOnceTakeNoMoreThanThereIs":        concurrent,
		"NoBucketIsNoLimit":                      noBuckets,
		"ABucketThatNeverHasATokenIsAnError":     invalid,
		"AFreezeForNoTimeIsNothing":              noFreeze,
		"ABucketIsTheSameWithAnotherRateOrBurst": otherBounds,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBackend(t))
		})
	}
}

const (
	group    = "acct"
	interval = 1000 * time.Second
	// slack is what may pass while a test runs.
	slack = 300 * time.Second
)

func bucket(key string, burst int) ratelimit.Bucket {
	return ratelimit.Bucket{Key: key, Rate: 1 / interval.Seconds(), Burst: burst}
}

func take(t *testing.T, b Backend, buckets ...ratelimit.Bucket) time.Duration {
	t.Helper()
	wait, err := b.Take(t.Context(), group, buckets...)
	require.NoError(t, err)
	return wait
}

func requireTaken(t *testing.T, b Backend, buckets ...ratelimit.Bucket) {
	t.Helper()
	require.Zero(t, take(t, b, buckets...))
}

// requireWait: want, less what has passed meanwhile.
func requireWait(t *testing.T, b Backend, want time.Duration, buckets ...ratelimit.Bucket) {
	t.Helper()
	wait := take(t, b, buckets...)
	require.LessOrEqual(t, wait, want)
	require.Greater(t, wait, want-slack)
}

func freeze(t *testing.T, b Backend, key string, d time.Duration) {
	t.Helper()
	require.NoError(t, b.Freeze(t.Context(), group, key, d))
}

func emptied(t *testing.T, b Backend) {
	for range 3 {
		requireTaken(t, b, bucket("a", 3))
	}
	requireWait(t, b, interval, bucket("a", 3))
}

func refilled(t *testing.T, b Backend) {
	for range 3 {
		requireTaken(t, b, bucket("a", 3))
	}
	b.Advance(interval)
	requireTaken(t, b, bucket("a", 3))
	requireWait(t, b, interval, bucket("a", 3))
	b.Advance(2 * interval)
	requireTaken(t, b, bucket("a", 3))
	requireTaken(t, b, bucket("a", 3))
	requireWait(t, b, interval, bucket("a", 3))
}

func capped(t *testing.T, b Backend) {
	requireTaken(t, b, bucket("a", 2))
	b.Advance(50 * interval)
	requireTaken(t, b, bucket("a", 2))
	requireTaken(t, b, bucket("a", 2))
	requireWait(t, b, interval, bucket("a", 2))
}

func refusedIsFree(t *testing.T, b Backend) {
	requireTaken(t, b, bucket("a", 1))
	for range 5 {
		requireWait(t, b, interval, bucket("a", 1))
	}
	b.Advance(interval)
	requireTaken(t, b, bucket("a", 1))
}

func together(t *testing.T, b Backend) {
	requireTaken(t, b, bucket("wide", 5), bucket("narrow", 1))
	requireWait(t, b, interval, bucket("wide", 5), bucket("narrow", 1))
	for range 4 {
		requireTaken(t, b, bucket("wide", 5), bucket("other", 9))
	}
	requireWait(t, b, interval, bucket("wide", 5), bucket("other", 9))
	for range 5 {
		requireTaken(t, b, bucket("other", 9))
	}
	requireWait(t, b, interval, bucket("other", 9))
}

func longestWait(t *testing.T, b Backend) {
	slow := ratelimit.Bucket{Key: "slow", Rate: 1 / (4 * interval).Seconds(), Burst: 1}
	requireTaken(t, b, bucket("a", 1), slow)
	requireWait(t, b, 4*interval, bucket("a", 1), slow)
	requireWait(t, b, 4*interval, slow, bucket("a", 1))
}

func groups(t *testing.T, b Backend) {
	requireTaken(t, b, bucket("a", 1))
	wait, err := b.Take(t.Context(), "other", bucket("a", 1))
	require.NoError(t, err)
	require.Zero(t, wait)
	requireWait(t, b, interval, bucket("a", 1))
}

func frozen(t *testing.T, b Backend) {
	freeze(t, b, "a", interval)
	requireWait(t, b, interval, bucket("wide", 9), bucket("a", 9))
	b.Advance(interval - slack)
	require.Positive(t, take(t, b, bucket("a", 9)))
	b.Advance(slack)
	requireTaken(t, b, bucket("a", 9))
}

func laterFreezeStands(t *testing.T, b Backend) {
	freeze(t, b, "a", 3*interval)
	freeze(t, b, "a", interval)
	requireWait(t, b, 3*interval, bucket("a", 1))
	freeze(t, b, "a", 5*interval)
	requireWait(t, b, 5*interval, bucket("a", 1))
}

func frozenKeepsTokens(t *testing.T, b Backend) {
	for range 3 {
		requireTaken(t, b, bucket("a", 3))
	}
	freeze(t, b, "a", interval/2)
	requireWait(t, b, interval, bucket("a", 3))
	b.Advance(2 * interval)
	requireTaken(t, b, bucket("a", 3))
	requireTaken(t, b, bucket("a", 3))
	requireWait(t, b, interval, bucket("a", 3))
}

func freezeIsNarrow(t *testing.T, b Backend) {
	freeze(t, b, "chat1", interval)
	requireTaken(t, b, bucket("bot", 9), bucket("chat2", 1))
	require.Positive(t, take(t, b, bucket("bot", 9), bucket("chat1", 1)))
	wait, err := b.Take(t.Context(), "other", bucket("chat1", 1))
	require.NoError(t, err)
	require.Zero(t, wait)
}

func concurrent(t *testing.T, b Backend) {
	const burst = 10
	var taken, failed atomic.Int64
	var wg sync.WaitGroup
	for range 4 * burst {
		wg.Go(func() {
			wait, err := b.Take(t.Context(), group, bucket("wide", 1000), bucket("a", burst))
			switch {
			case err != nil:
				failed.Add(1)
			case wait == 0:
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, failed.Load())
	require.Equal(t, int64(burst), taken.Load())
}

func noBuckets(t *testing.T, b Backend) {
	requireTaken(t, b)
}

func invalid(t *testing.T, b Backend) {
	for _, bad := range []ratelimit.Bucket{{Key: "a", Rate: 0, Burst: 1}, {Key: "a", Rate: 1, Burst: 0}} {
		_, err := b.Take(t.Context(), group, bucket("b", 1), bad)
		require.ErrorContains(t, err, "bucket a")
	}
	requireTaken(t, b, bucket("b", 1))
}

func noFreeze(t *testing.T, b Backend) {
	freeze(t, b, "a", 0)
	freeze(t, b, "a", -interval)
	requireTaken(t, b, bucket("a", 1))
}

func otherBounds(t *testing.T, b Backend) {
	for range 2 {
		requireTaken(t, b, bucket("a", 2))
	}
	require.Positive(t, take(t, b, bucket("a", 1)))
	requireTaken(t, b, bucket("a", 3))
}
