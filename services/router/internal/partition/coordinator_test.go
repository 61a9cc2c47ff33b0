package partition_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
	"github.com/hermes-runtime/hermes/services/router/internal/partition"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redisserver.IgnoreProbes()) }

const (
	renewal = 20 * time.Millisecond
	// soon is below the time after which a router is forgotten by itself; keys of miniredis never end by themselves.
	soon = 8 * time.Second
)

// owner remembers what it was told to read.
type owner struct {
	mu    sync.Mutex
	now   []int
	onOwn func(dropped []int)
}

func (o *owner) Own(_ context.Context, partitions []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.onOwn != nil {
		o.onOwn(slices.DeleteFunc(slices.Clone(o.now), func(p int) bool { return slices.Contains(partitions, p) }))
	}
	o.now = partitions
}

func (o *owner) reading() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.now)
}

type router struct {
	*partition.Coordinator
	*owner
}

func newRouter(t *testing.T, url, id string) *router {
	t.Helper()
	leases, err := redislease.Open(t.Context(), redislease.Config{URL: url})
	require.NoError(t, err)
	o := &owner{}
	c := partition.New(partition.Config{RouterID: id, Renewal: renewal},
		partition.Deps{Leases: leases, Owner: o, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		require.NoError(t, c.Stop(context.WithoutCancel(t.Context())))
		require.NoError(t, leases.Close())
	})
	return &router{Coordinator: c, owner: o}
}

func start(t *testing.T, url, id string) *router {
	t.Helper()
	r := newRouter(t, url, id)
	require.NoError(t, r.Start(t.Context()))
	return r
}

func redisURL(m *miniredis.Miniredis) string { return "redis://" + m.Addr() }

// requireShared waits until the routers read every partition exactly once, each some.
func requireShared(t *testing.T, routers ...*router) {
	t.Helper()
	await.True(t, soon, func() bool {
		var all []int
		for _, r := range routers {
			if len(r.reading()) == 0 {
				return false
			}
			all = append(all, r.reading()...)
		}
		slices.Sort(all)
		return slices.Equal(all, partition.All())
	})
}

func TestCoordinator_SharesPartitionsAmongRouters(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	a := start(t, redisURL(redis), "a")
	require.Equal(t, partition.All(), a.reading(), "the first router has everything when it is ready")
	b := start(t, redisURL(redis), "b")
	c := start(t, redisURL(redis), "c")
	requireShared(t, a, b, c)
	require.Equal(t, partition.Wanted([]string{"a", "b", "c"}, "b"), b.Owned())
}

func TestCoordinator_StopsReadingBeforeItGivesUp(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	a := newRouter(t, redisURL(redis), "a")
	var held []string
	a.onOwn = func(dropped []int) {
		for _, p := range dropped {
			holder, err := redis.Get(fmt.Sprintf("p:{%s}", bus.PartitionToken(p)))
			if err != nil {
				holder = err.Error()
			}
			held = append(held, holder)
		}
	}
	require.NoError(t, a.Start(t.Context()))
	b := start(t, redisURL(redis), "b")
	requireShared(t, a, b)
	require.NoError(t, a.Stop(t.Context()))
	require.Len(t, held, len(partition.All()), "each partition was dropped once")
	for _, holder := range held {
		require.Equal(t, "a", holder)
	}
}

func TestCoordinator_HandsOverAtOnceWhenItIsStopped(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	a, b := start(t, redisURL(redis), "a"), start(t, redisURL(redis), "b")
	requireShared(t, a, b)
	require.NoError(t, a.Stop(t.Context()))
	require.Empty(t, a.reading())
	requireShared(t, b)
	require.NoError(t, a.Stop(t.Context()), "a second stop does nothing")
}

func TestCoordinator_DropsAPartitionThatSomebodyElseOwns(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	a := start(t, redisURL(redis), "a")
	require.NoError(t, redis.Set("p:{05}", "thief"))
	await.True(t, soon, func() bool { return !slices.Contains(a.reading(), 5) })
	require.Len(t, a.reading(), 63)
	redis.Del("p:{05}")
	requireShared(t, a)
}

func TestCoordinator_KeepsItsPartitionsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	a, b := start(t, redisURL(redis), "a"), start(t, redisURL(redis), "b")
	requireShared(t, a, b)
	before, url := a.reading(), redisURL(redis)
	redis.Close()
	c := start(t, url, "c")
	require.Equal(t, partition.All(), c.reading(), "a router that starts without redis reads everything")
	require.Equal(t, before, a.reading())

	require.NoError(t, redis.Restart())
	requireShared(t, a, b, c)
}

func TestCoordinator_StopWithoutRedisOrStartIsQuiet(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	require.NoError(t, newRouter(t, redisURL(redis), "never started").Stop(t.Context()))
	a := start(t, redisURL(redis), "a")
	redis.Close()
	require.NoError(t, a.Stop(t.Context()))
	require.Empty(t, a.reading())
}
