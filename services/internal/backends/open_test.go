package backends

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

func openWith(t *testing.T, url string, needs Needs) (*Opened, error) {
	t.Helper()
	cfg := config.Default()
	cfg.Redis.URL = url
	tel, err := telemetry.New(t.Context(), cfg.Telemetry, telemetry.Options{Service: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.WithoutCancel(t.Context()))) })
	o, err := Open(t.Context(), cfg, "test", needs, tel)
	if o != nil {
		t.Cleanup(o.Close)
	}
	return o, err
}

// takes reports whether limits are kept.
func takes(t *testing.T, o *Opened) {
	t.Helper()
	bucket := ratelimit.Bucket{Key: "b", Rate: 0.001, Burst: 1}
	wait, err := o.Limits.Take(t.Context(), "g", bucket)
	require.NoError(t, err)
	require.Zero(t, wait)
	wait, err = o.Limits.Take(t.Context(), "g", bucket)
	require.NoError(t, err)
	require.Greater(t, wait, time.Minute)
}

func TestOpen_GoesOnWithoutRedisWhereOnlyLimitsAreNeeded(t *testing.T) {
	t.Parallel()
	server := redisserver.NewMini(t)
	url := "redis://" + server.Addr()
	server.Close()
	o, err := openWith(t, url, Needs{Limits: true})
	require.NoError(t, err)
	require.ErrorIs(t, o.Leases.Ready(t.Context()), lease.ErrUnavailable)
	takes(t, o)
	_, err = openWith(t, url, Needs{Limits: true, Leases: true})
	require.ErrorIs(t, err, ErrUnreachable)
}

func TestOpen_SharesLimitsThroughRedis(t *testing.T) {
	t.Parallel()
	server := redisserver.NewMini(t)
	o, err := openWith(t, "redis://"+server.Addr(), Needs{Leases: true})
	require.NoError(t, err)
	takes(t, o)
	require.Contains(t, server.Keys(), "rl:{g}:b")
}

func TestOpen_RefusesARedisAddressThatIsNone(t *testing.T) {
	t.Parallel()
	_, err := openWith(t, "http://127.0.0.1", Needs{Limits: true})
	require.EqualError(t, err, "redis.url: redis: url: not a redis:// or rediss:// address")
}
