package slot

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
)

const sessionKey = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

// keeping is a keeper that holds one lease of generation 5.
type keeping struct {
	*keeper
	redis  *miniredis.Miniredis
	leases *redislease.Leases
	lease  lease.Lease
	handle *control.Handle
}

func keepOne(t *testing.T) *keeping {
	t.Helper()
	k := &keeping{redis: miniredis.RunT(t), lease: lease.Lease{SKey: sessionKey, Gen: 5, RunID: "r", Holder: "worker-1/n"}}
	var err error
	k.leases, err = redislease.Open(t.Context(), redislease.Config{URL: "redis://" + k.redis.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.leases.Close()) })
	latency, err := noop.Meter{}.Float64Histogram("latency")
	require.NoError(t, err)
	k.keeper = newKeeper(k.leases, slog.New(slog.DiscardHandler), latency)
	k.handle = control.NewHandle(t.Context(), store.Fence{SKey: sessionKey, Gen: 5})
	t.Cleanup(k.handle.Close)
	require.Equal(t, []bool{true}, k.acquire(t.Context(), []lease.Lease{k.lease}))
	k.hold(k.lease, k.handle)
	return k
}

func (k *keeping) renewAll(t *testing.T) {
	t.Helper()
	k.renew(t.Context(), k.due(time.Now()))
}

func (k *keeping) stored(t *testing.T) *lease.Lease {
	t.Helper()
	found, err := k.leases.Lookup(t.Context(), []string{sessionKey})
	require.NoError(t, err)
	return found[0]
}

func TestKeeper_RenewalExtendsTheLease(t *testing.T) {
	t.Parallel()
	k := keepOne(t)
	k.redis.FastForward(10 * time.Second)
	k.renewAll(t)
	k.redis.FastForward(10 * time.Second)
	require.Equal(t, &k.lease, k.stored(t))
	require.NoError(t, k.handle.Hold().Err())
}

func TestKeeper_LostLeaseFencesTheRun(t *testing.T) {
	t.Parallel()
	k := keepOne(t)
	other := lease.Lease{SKey: sessionKey, Gen: 6, RunID: "r", Holder: "worker-2/n"}
	_, err := k.leases.Acquire(t.Context(), []lease.Lease{other})
	require.NoError(t, err)
	k.renewAll(t)
	require.Equal(t, agent.ErrFenced, context.Cause(k.handle.Hold()))
	require.Empty(t, k.due(time.Now()))
	k.release(t.Context(), k.lease)
	require.Equal(t, &other, k.stored(t), "a release frees only the own lease")
}

func TestKeeper_ForgottenLeaseIsTakenAgainUnderTheSameGeneration(t *testing.T) {
	t.Parallel()
	k := keepOne(t)
	k.redis.FlushAll()
	k.renewAll(t)
	require.Equal(t, &k.lease, k.stored(t))
	require.NoError(t, k.handle.Hold().Err())
}

func TestKeeper_ForgottenLeaseOfAReplacedRunFencesIt(t *testing.T) {
	t.Parallel()
	k := keepOne(t)
	kept := k.due(time.Now())
	k.redis.FlushAll()
	_, err := k.leases.Acquire(t.Context(), []lease.Lease{{SKey: sessionKey, Gen: 6, RunID: "r", Holder: "worker-2/n"}})
	require.NoError(t, err)
	k.restore(t.Context(), kept)
	require.Equal(t, agent.ErrFenced, context.Cause(k.handle.Hold()))
}

func TestKeeper_RedisThatIsDownSaysNothing(t *testing.T) {
	t.Parallel()
	k := keepOne(t)
	k.redis.SetError("LOADING")
	k.renewAll(t)
	require.NoError(t, k.handle.Hold().Err())
	require.Equal(t, []bool{true}, k.acquire(t.Context(), []lease.Lease{k.lease}), "starts go on without leases")
	require.True(t, k.down)
	k.redis.SetError("")
	k.renewAll(t)
	require.False(t, k.down)
	require.Equal(t, &k.lease, k.stored(t))
}

func TestKeeper_StopsToRenewAtTheLimit(t *testing.T) {
	t.Parallel()
	k := keepOne(t)
	now := time.Now()
	k.limit(k.lease, now.Add(time.Minute))
	require.Len(t, k.due(now.Add(59*time.Second)), 1)
	require.Empty(t, k.due(now.Add(time.Minute)))
}

func TestKeeper_ReleaseFreesTheSession(t *testing.T) {
	t.Parallel()
	k := keepOne(t)
	k.release(t.Context(), k.lease)
	require.Nil(t, k.stored(t))
	require.Empty(t, k.due(time.Now()))
}
