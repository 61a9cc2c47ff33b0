package agentcache_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/worker/internal/agentcache"
)

// pass lets virtual time go by.
func pass(d time.Duration) { <-time.After(d) }

// agent is what the tests build.
type agent struct{ number int }

// shop builds numbered agents and remembers which were discarded.
type shop struct {
	mu        sync.Mutex
	built     int
	discarded []int
}

func (s *shop) build(context.Context) (*agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.built++
	return &agent{number: s.built}, nil
}

func (s *shop) discard(a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded = append(s.discarded, a.number)
}

func (s *shop) gone() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int{}, s.discarded...)
}

func setup(t *testing.T, capacity int) (*agentcache.Cache[*agent], *shop) {
	t.Helper()
	s := &shop{}
	c := agentcache.New(agentcache.Options{Capacity: capacity, Idle: time.Hour}, s.discard)
	t.Cleanup(c.Close)
	return c, s
}

func key(session string) agentcache.Key { return agentcache.Key{Profile: "default", Session: session} }

// acquire returns the lease of an agent that the shop builds.
func acquire(t *testing.T, c *agentcache.Cache[*agent], s *shop, session string, sig agentcache.Signature) agentcache.Lease[*agent] {
	t.Helper()
	l, err := c.Acquire(t.Context(), key(session), sig, s.build)
	require.NoError(t, err)
	return l
}

func TestCache_ReusesAnAgentOfTheSameSignature(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 8)
	first := acquire(t, c, s, "a", "1")
	require.False(t, first.Reused)
	first.Release()
	again := acquire(t, c, s, "a", "1")
	defer again.Release()
	require.True(t, again.Reused)
	require.Same(t, first.Value, again.Value)
	other := acquire(t, c, s, "b", "1")
	defer other.Release()
	require.Equal(t, 2, other.Value.number, "conversations share no agent")
}

func TestCache_KeepsProfilesApart(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 8)
	for i, profile := range []string{"one", "two"} {
		l, err := c.Acquire(t.Context(), agentcache.Key{Profile: profile, Session: "a"}, "1", s.build)
		require.NoError(t, err)
		require.Equal(t, i+1, l.Value.number)
		l.Release()
	}
	require.Equal(t, 2, c.Len())
}

func TestCache_RebuildsForTheSecondSpeakerOfASharedThread(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 8)
	for i, user := range []string{"alice", "bob", "alice"} {
		sig, err := agentcache.Config{Model: "m-1", UserID: user}.Sign()
		require.NoError(t, err)
		l := acquire(t, c, s, "thread", sig)
		require.Equal(t, i+1, l.Value.number)
		require.False(t, l.Reused)
		l.Release()
	}
	require.Equal(t, []int{1, 2}, s.gone())
	require.Equal(t, 1, c.Len())
}

func TestCache_DropsTheOneUsedLongestAgo(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 2)
	for _, session := range []string{"a", "b", "a", "c"} {
		acquire(t, c, s, session, "1").Release()
	}
	require.Equal(t, []int{2}, s.gone(), "b was used before a was used again")
	l := acquire(t, c, s, "a", "1")
	defer l.Release()
	require.True(t, l.Reused)
}

func TestCache_NeverDropsAnAgentInUse(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 2)
	var leases []agentcache.Lease[*agent]
	for _, session := range []string{"a", "b", "c", "d"} {
		leases = append(leases, acquire(t, c, s, session, "1"))
	}
	require.Empty(t, s.gone())
	require.Equal(t, 4, c.Len())
	again := acquire(t, c, s, "a", "1")
	require.True(t, again.Reused)
	leases[0].Release()
	leases[0].Release()
	require.Empty(t, s.gone(), "a is still in use by its second lease")
	again.Release()
	require.Equal(t, []int{1}, s.gone(), "the cache is over its capacity")
	for _, l := range leases[1:] {
		l.Release()
	}
	require.Equal(t, 2, c.Len())
	require.Equal(t, []int{1, 2}, s.gone())
}

func TestCache_KeepsAReplacedAgentForItsUser(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 8)
	old := acquire(t, c, s, "a", "1")
	fresh := acquire(t, c, s, "a", "2")
	require.Equal(t, 2, fresh.Value.number)
	require.Empty(t, s.gone())
	old.Release()
	require.Equal(t, []int{1}, s.gone())
	fresh.Release()
	require.Equal(t, 1, c.Len())
}

func TestCache_DropsAgentsThatWereIdleForTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := setup(t, 8)
		used := acquire(t, c, s, "used", "1")
		acquire(t, c, s, "a", "1").Release()
		pass(30 * time.Minute)
		acquire(t, c, s, "b", "1").Release()
		pass(30*time.Minute + time.Second)
		require.Equal(t, []int{2}, s.gone(), "only a was idle for an hour")
		pass(30 * time.Minute)
		require.Equal(t, []int{2, 3}, s.gone())
		require.Equal(t, 1, c.Len())
		used.Release()
		pass(59 * time.Minute)
		require.Equal(t, 1, c.Len())
		pass(2 * time.Minute)
		require.Zero(t, c.Len())
	})
}

func TestCache_UseRestartsTheIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := setup(t, 8)
		for range 5 {
			acquire(t, c, s, "a", "1").Release()
			pass(59 * time.Minute)
		}
		require.Empty(t, s.gone())
		require.Equal(t, 1, s.built)
	})
}

func TestCache_BuildsOnceForAllWhoAskAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := setup(t, 8)
		slow := func(ctx context.Context) (*agent, error) {
			pass(time.Second)
			return s.build(ctx)
		}
		leases := make([]agentcache.Lease[*agent], 10)
		var all sync.WaitGroup
		for i := range leases {
			all.Go(func() {
				var err error
				leases[i], err = c.Acquire(t.Context(), key("a"), "1", slow)
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.Equal(t, 1, s.built)
		reused := 0
		for _, l := range leases {
			require.Same(t, leases[0].Value, l.Value)
			if l.Reused {
				reused++
			}
			l.Release()
		}
		require.Equal(t, 9, reused)
	})
}

func TestCache_KeepsNothingOfAFailedBuild(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 8)
	broken := errors.New("no tools")
	_, err := c.Acquire(t.Context(), key("a"), "1", func(context.Context) (*agent, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	require.Zero(t, c.Len())
	l := acquire(t, c, s, "a", "1")
	defer l.Release()
	require.Equal(t, 1, l.Value.number)
}

func TestCache_SharesTheErrorOfABuild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := setup(t, 8)
		broken := errors.New("no tools")
		builds := 0
		fail := func(context.Context) (*agent, error) {
			builds++
			pass(time.Second)
			return nil, broken
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := c.Acquire(t.Context(), key("a"), "1", fail)
				require.ErrorIs(t, err, broken)
			})
		}
		all.Wait()
		require.Equal(t, 1, builds)
	})
}

func TestCache_TriesAgainWhenTheBuilderWasCalledOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := setup(t, 8)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := c.Acquire(ctx, key("a"), "1", func(ctx context.Context) (*agent, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		all.Go(func() { acquire(t, c, s, "a", "1").Release() })
		synctest.Wait()
		cancel()
		all.Wait()
		require.Equal(t, 1, s.built)
		require.Equal(t, 1, c.Len())
	})
}

func TestCache_LetsAWaiterGoWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := setup(t, 8)
		finish := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			l, err := c.Acquire(t.Context(), key("a"), "1", func(ctx context.Context) (*agent, error) {
				<-finish
				return s.build(ctx)
			})
			require.NoError(t, err)
			l.Release()
		})
		synctest.Wait()
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stopped)
		_, err := c.Acquire(ctx, key("a"), "1", s.build)
		require.ErrorIs(t, err, stopped)
		close(finish)
		all.Wait()
		require.Equal(t, 1, c.Len())
	})
}

func TestCache_SurvivesABuildThatPanics(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 8)
	require.Panics(t, func() {
		_, err := c.Acquire(t.Context(), key("a"), "1", func(context.Context) (*agent, error) { panic("broken") })
		require.NoError(t, err)
	})
	acquire(t, c, s, "a", "1").Release()
	require.Equal(t, 1, c.Len())
}

func TestCache_CloseDropsAll(t *testing.T) {
	t.Parallel()
	c, s := setup(t, 8)
	acquire(t, c, s, "a", "1").Release()
	used := acquire(t, c, s, "b", "1")
	c.Close()
	require.Equal(t, []int{1}, s.gone())
	used.Release()
	require.Equal(t, []int{1, 2}, s.gone())
	_, err := c.Acquire(t.Context(), key("a"), "1", s.build)
	require.ErrorIs(t, err, agentcache.ErrClosed)
}
