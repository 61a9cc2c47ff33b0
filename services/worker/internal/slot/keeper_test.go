package slot

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
)

const sessionKey = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

// truth is a store that knows who owns which session.
type truth struct {
	mu     sync.Mutex
	fences map[string]store.Fence
	// before and after fail the n-th re-claim, from 0, without and with its effect.
	before, after func(n int) error
	calls         int
}

func (s *truth) own(f store.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fences[f.SKey] = f
}

func (s *truth) Reclaim(_ context.Context, rs []store.Reclaim) ([]store.Reclaimed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.calls
	s.calls++
	if err := s.before(n); err != nil {
		return nil, err
	}
	results := make([]store.Reclaimed, len(rs))
	for i, r := range rs {
		f := r.Fence
		if s.fences[f.SKey] != f {
			results[i].Err = store.ErrFenced
			continue
		}
		f.Gen, f.Owner = f.Gen+1, r.Fresh
		s.fences[f.SKey], results[i].Gen = f, f.Gen
	}
	return results, s.after(n)
}

func (s *truth) Stops(_ context.Context, fences []store.Fence) ([]store.StopState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]store.StopState, len(fences))
	for i, f := range fences {
		states[i].Held = s.fences[f.SKey] == f
	}
	return states, nil
}

// keeping is a keeper that holds the lease of one claimed run of generation 5. Its loops run only where a test starts
// them.
type keeping struct {
	*keeper
	truth  *truth
	handle *control.Handle
}

func keepOne(t *testing.T, leases lease.Sessions) *keeping {
	t.Helper()
	never := func(int) error { return nil }
	k := &keeping{truth: &truth{fences: map[string]store.Fence{}, before: never, after: never}}
	metrics, err := NewMetrics(sdkmetric.NewMeterProvider().Meter("test"))
	require.NoError(t, err)
	start := time.Now()
	clock := boottime.Clock(func() time.Duration { return time.Since(start) })
	k.keeper = newKeeper(keeperDeps{
		leases: leases, store: k.truth, metrics: metrics, logger: slog.New(slog.DiscardHandler), clock: clock,
		newOwner: func() string { return "worker-1/" + uuid.NewString() },
	})
	fence := store.Fence{SKey: sessionKey, Gen: 5, RunID: uuid.New(), Owner: "worker-1/n"}
	k.handle = control.NewHandleWithClock(t.Context(), fence, clock)
	t.Cleanup(k.handle.Close)
	k.handle.Claim()
	k.truth.own(fence)
	require.Equal(t, []bool{true}, k.acquire(t.Context(), []lease.Lease{leaseOf(fence)}))
	k.hold(k.handle)
	return k
}

// start runs the loops until the end of the test.
func (k *keeping) start(t *testing.T, loops ...func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, loop := range loops {
		wg.Go(func() { loop(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

// turn renews what will be due within a period, and reclaims what was forgotten.
func (k *keeping) turn(t *testing.T) {
	t.Helper()
	k.renewDue(t.Context(), time.Now().Add(lease.Renewal))
	k.reclaim(t.Context(), k.takeForgotten())
}

// onRedis keeps on an imitation of Redis.
type onRedis struct {
	*keeping
	redis  *miniredis.Miniredis
	leases *redislease.Leases
}

func keepOnRedis(t *testing.T) onRedis {
	t.Helper()
	r := onRedis{redis: miniredis.RunT(t)}
	var err error
	r.leases, err = redislease.Open(t.Context(), redislease.Config{URL: "redis://" + r.redis.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.leases.Close()) })
	r.keeping = keepOne(t, r.leases)
	return r
}

func (r onRedis) stored(t *testing.T) *lease.Lease {
	t.Helper()
	found, err := r.leases.Lookup(t.Context(), []string{sessionKey})
	require.NoError(t, err)
	return found[0]
}

func (r onRedis) requireHeld(t *testing.T, gen int64) {
	t.Helper()
	fence := r.handle.Fence()
	require.Equal(t, gen, fence.Gen)
	require.Equal(t, fence, r.truth.fences[sessionKey])
	held := leaseOf(fence)
	require.Equal(t, &held, r.stored(t))
	require.NoError(t, r.handle.Hold().Err())
}

func TestKeeper_RenewalExtendsTheLease(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.redis.FastForward(10 * time.Second)
	k.turn(t)
	k.redis.FastForward(10 * time.Second)
	k.requireHeld(t, 5)
	require.Zero(t, k.truth.calls)
}

func TestKeeper_LostLeaseFencesTheRun(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.start(t, k.serve)
	other := lease.Lease{SKey: sessionKey, Gen: 6, RunID: "r", Holder: "worker-2/n"}
	_, err := k.leases.Acquire(t.Context(), []lease.Lease{other})
	require.NoError(t, err)
	k.turn(t)
	require.Equal(t, agent.ErrFenced, context.Cause(k.handle.Hold()))
	require.Empty(t, k.due(time.Now().Add(time.Hour)))
	k.release(t.Context(), k.handle)
	require.Equal(t, &other, k.stored(t), "a release frees only the own lease")
}

func TestKeeper_ForgottenLeaseIsReclaimedUnderTheNextGeneration(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.redis.FlushAll()
	k.turn(t)
	k.requireHeld(t, 6)
	require.NotEqual(t, "worker-1/n", k.handle.Fence().Owner)
	k.turn(t)
	k.requireHeld(t, 6)
	require.Equal(t, 1, k.truth.calls)
}

func TestKeeper_ForgottenLeaseOfARunThatWasTakenOverFencesIt(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.redis.FlushAll()
	k.truth.own(store.Fence{SKey: sessionKey, Gen: 6, RunID: k.handle.RunID, Owner: "worker-2/n"})
	k.turn(t)
	require.Equal(t, agent.ErrFenced, context.Cause(k.handle.Hold()))
	require.Nil(t, k.stored(t))
}

func TestKeeper_AHigherLeaseThatCameBeforeTheReclaimedOneFencesTheRun(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.redis.FlushAll()
	k.renewDue(t.Context(), time.Now().Add(lease.Renewal))
	_, err := k.leases.Acquire(t.Context(), []lease.Lease{{SKey: sessionKey, Gen: 7, RunID: "r", Holder: "worker-2/n"}})
	require.NoError(t, err)
	k.reclaim(t.Context(), k.takeForgotten())
	require.Equal(t, agent.ErrFenced, context.Cause(k.handle.Hold()))
}

func TestKeeper_ARunThatWritesIsReclaimedLater(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.redis.FlushAll()
	require.NoError(t, k.handle.Write(func(store.Fence) error {
		k.turn(t)
		return nil
	}))
	require.Equal(t, int64(5), k.handle.Fence().Gen)
	require.Zero(t, k.truth.calls)
	k.renewDue(t.Context(), time.Now().Add(renewSoon))
	k.reclaim(t.Context(), k.takeForgotten())
	k.requireHeld(t, 6)
}

func TestKeeper_AReclaimWhoseAnswerWasLostIsRecognised(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.truth.after = func(n int) error { return []error{store.ErrUnavailable, nil}[n] }
	k.redis.FlushAll()
	k.turn(t)
	k.requireHeld(t, 6)
	require.Equal(t, 2, k.truth.calls)
}

func TestKeeper_AReclaimThatTheStoreRefusesIsTriedAgain(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.truth.before = func(n int) error { return []error{store.ErrRejected, nil}[n] }
	k.redis.FlushAll()
	k.turn(t)
	require.Equal(t, int64(5), k.handle.Fence().Gen)
	require.NoError(t, k.handle.Write(func(store.Fence) error { return nil }), "writes go on")
	k.turn(t)
	k.requireHeld(t, 6)
}

func TestKeeper_ARunThatEndedMeanwhileIsNotReclaimed(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.redis.FlushAll()
	k.renewDue(t.Context(), time.Now().Add(lease.Renewal))
	k.forget(k.handle)
	k.reclaim(t.Context(), k.takeForgotten())
	require.Zero(t, k.truth.calls)
	require.Nil(t, k.stored(t))
}

func TestKeeper_RedisThatIsDownSaysNothing(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.redis.SetError("LOADING")
	k.turn(t)
	require.NoError(t, k.handle.Hold().Err())
	require.Equal(t, []bool{true}, k.acquire(t.Context(), []lease.Lease{leaseOf(k.handle.Fence())}), "starts go on without leases")
	require.True(t, k.down)
	k.redis.SetError("")
	k.renewDue(t.Context(), time.Now().Add(2*lease.Renewal))
	require.False(t, k.down)
	k.requireHeld(t, 5)
}

func TestKeeper_StopsToRenewAtTheLimit(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.handle.Limit(time.Hour)
	require.Len(t, k.due(time.Now().Add(lease.Renewal)), 1)
	k.handle.Limit(0)
	require.Empty(t, k.due(time.Now().Add(time.Hour)))
}

func TestKeeper_ReleaseFreesTheSession(t *testing.T) {
	t.Parallel()
	k := keepOnRedis(t)
	k.start(t, k.serve)
	k.redis.FlushAll()
	k.turn(t)
	k.release(t.Context(), k.handle)
	require.Nil(t, k.stored(t), "the lease of the generation that it has now")
	require.Empty(t, k.due(time.Now().Add(time.Hour)))
}

// counted are leases that answer after a second of virtual time.
type counted struct {
	mu sync.Mutex
	// renewed, acquired and released are the sizes of the calls.
	renewed, acquired, released []int
	answer                      lease.Renewed
}

func (c *counted) note(sizes *[]int, n int) {
	c.mu.Lock()
	*sizes = append(*sizes, n)
	c.mu.Unlock()
	<-time.After(time.Second)
}

func (c *counted) sizes(sizes *[]int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(*sizes)
}

func (*counted) Reserve(context.Context, []lease.Lease) ([]lease.Grant, error) { panic("not used") }

func (*counted) Lookup(context.Context, []string) ([]*lease.Lease, error) { panic("not used") }

func (c *counted) Acquire(_ context.Context, leases []lease.Lease) ([]lease.Grant, error) {
	c.note(&c.acquired, len(leases))
	return slices.Repeat([]lease.Grant{{OK: true}}, len(leases)), nil
}

func (c *counted) Renew(_ context.Context, leases []lease.Lease) ([]lease.Renewed, error) {
	c.note(&c.renewed, len(leases))
	return slices.Repeat([]lease.Renewed{c.answer}, len(leases)), nil
}

func (c *counted) Release(_ context.Context, leases []lease.Lease) error {
	c.note(&c.released, len(leases))
	return nil
}

func TestKeeper_TakesAndReleasesOfManySlotsShareAPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		k := keepOne(t, c)
		k.start(t, k.serve)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { k.free(t.Context(), lease.Lease{SKey: sessionKey}) })
			synctest.Wait()
		}
		for range 3 {
			wg.Go(func() { require.True(t, k.take(t.Context(), lease.Lease{SKey: sessionKey})) })
		}
		wg.Wait()
		require.Equal(t, []int{1, 4}, c.sizes(&c.released))
		require.Equal(t, []int{1, 3}, c.sizes(&c.acquired), "the first one is that of the run in hand")
	})
}

func TestKeeper_RenewsEachLeaseOncePerPeriodInBoundedPipelines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		k := keepOne(t, c)
		for i := range 1200 {
			h := control.NewHandleWithClock(t.Context(), store.Fence{SKey: sessionKey, Gen: int64(i)}, k.clock)
			t.Cleanup(h.Close)
			k.hold(h)
		}
		now := time.Now()
		require.Less(t, len(k.due(now.Add(lease.Renewal/2))), 1000, "they are spread")
		k.renewDue(t.Context(), now.Add(2*lease.Renewal))
		require.Equal(t, []int{500, 500, 201}, c.sizes(&c.renewed))
		require.Empty(t, k.due(now.Add(3*lease.Renewal-lease.Renewal/5)))
		require.Len(t, k.due(now.Add(3*lease.Renewal)), 1201)
	})
}

func TestKeeper_RenewalsKeepARunGoingUntilTheyEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keepOne(t, &counted{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { k.renewals(ctx) })
		for range 60 {
			<-time.After(time.Second)
			require.NoError(t, k.handle.Check())
		}
		cancel()
		wg.Wait()
		<-time.After(lease.TTL)
		require.ErrorIs(t, k.handle.Check(), agent.ErrFenced)
	})
}

func TestKeeper_WritesWaitWhileAForgottenRunIsReclaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keepOne(t, &counted{answer: lease.Absent})
		down := time.Now().Add(20 * time.Second)
		k.truth.before = func(int) error {
			if time.Now().Before(down) {
				return store.ErrUnavailable
			}
			return nil
		}
		k.start(t, k.renewals, k.reclaims)
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.NoError(t, k.handle.Write(func(f store.Fence) error {
			require.False(t, time.Now().Before(down), "no write before the re-claim")
			require.Equal(t, int64(6), f.Gen)
			return nil
		}))
	})
}
