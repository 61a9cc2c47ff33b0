package redislimit

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/ratelimit/ratelimittest"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

// soon is also the timeout of calls: a slow machine takes its time over scripts.
const soon = 15 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redisserver.IgnoreProbes()) }

func connect(t *testing.T, url string) *Limiter {
	t.Helper()
	l, err := open(Config{URL: url}, soon)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestLimiter_PassesTheSuiteOnRedis(t *testing.T) {
	t.Parallel()
	ratelimittest.Run(t, func(t *testing.T) ratelimittest.Backend {
		t.Helper()
		l := connect(t, redisserver.New(t).URL())
		return ratelimittest.Backend{Limiter: l, Advance: func(d time.Duration) { age(t, l.client, d) }}
	})
}

// age makes every bucket d older, as nobody can wait that long.
func age(t *testing.T, c *redis.Client, d time.Duration) {
	t.Helper()
	ctx := t.Context()
	keys, err := c.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		left, err := c.PTTL(ctx, key).Result()
		require.NoError(t, err)
		require.Positive(t, left, "%s expires", key)
		fields, err := c.HGetAll(ctx, key).Result()
		require.NoError(t, err)
		for field, value := range fields {
			at, err := strconv.ParseInt(value, 10, 64)
			require.NoError(t, err)
			require.NoError(t, c.HSet(ctx, key, field, at-d.Microseconds()).Err())
		}
		require.NoError(t, c.PExpire(ctx, key, left-d).Err()) // not positive: deleted
	}
}

func TestLimiter_PassesTheSuiteOnMiniredis(t *testing.T) {
	t.Parallel()
	ratelimittest.Run(t, func(t *testing.T) ratelimittest.Backend {
		t.Helper()
		server := redisserver.NewMini(t)
		now := time.Now()
		server.SetTime(now)
		return ratelimittest.Backend{Limiter: connect(t, "redis://"+server.Addr()), Advance: func(d time.Duration) {
			now = now.Add(d)
			server.SetTime(now)
			server.FastForward(d)
		}}
	})
}

func second(key string) ratelimit.Bucket { return ratelimit.Bucket{Key: key, Rate: 1, Burst: 1} }

func TestTake_KeepsTheBucketsOfAGroupOnOneServerAndLetsThemExpire(t *testing.T) {
	t.Parallel()
	server := redisserver.NewMini(t)
	l := connect(t, "redis://"+server.Addr())
	_, err := l.Take(t.Context(), "telegram:77", second("bot"), second("chat:-100"))
	require.NoError(t, err)
	require.NoError(t, l.Freeze(t.Context(), "telegram:77", "chat:5", time.Minute))
	require.Equal(t, []string{"rl:{telegram:77}:bot", "rl:{telegram:77}:chat:-100", "rl:{telegram:77}:chat:5"}, server.Keys())
	server.FastForward(time.Second)
	require.Equal(t, []string{"rl:{telegram:77}:chat:5"}, server.Keys())
	server.FastForward(time.Minute)
	require.Empty(t, server.Keys())
}

func TestLimiter_SharesBucketsBetweenProcesses(t *testing.T) {
	t.Parallel()
	url := redisserver.New(t).URL()
	one, two := connect(t, url), connect(t, url)
	slow := ratelimit.Bucket{Key: "a", Rate: 0.001, Burst: 1}
	wait, err := one.Take(t.Context(), "g", slow)
	require.NoError(t, err)
	require.Zero(t, wait)
	wait, err = two.Take(t.Context(), "g", slow)
	require.NoError(t, err)
	require.Positive(t, wait)
	require.NoError(t, two.Freeze(t.Context(), "g", "b", time.Hour))
	wait, err = one.Take(t.Context(), "g", second("b"))
	require.NoError(t, err)
	require.Greater(t, wait, 50*time.Minute)
}

func TestLimiter_GoesOnAfterTheServerLostItsScripts(t *testing.T) {
	t.Parallel()
	server := redisserver.New(t)
	l := connect(t, server.URL())
	_, err := l.Take(t.Context(), "g", second("a"))
	require.NoError(t, err)
	require.NoError(t, server.RestartEmpty())
	await.NoError(t, soon, func() error { return l.Freeze(t.Context(), "g", "a", time.Hour) })
	wait, err := l.Take(t.Context(), "g", second("a"))
	require.NoError(t, err)
	require.Positive(t, wait)
}

func TestLimiter_IsUnavailableWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redisserver.New(t)
	l := connect(t, server.URL())
	server.Kill()
	_, err := l.Take(t.Context(), "g", second("a"))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	require.ErrorIs(t, l.Freeze(t.Context(), "g", "a", time.Hour), ratelimit.ErrUnavailable)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close(), "twice")
	_, err = l.Take(t.Context(), "g", second("a"))
	require.ErrorIs(t, err, ratelimit.ErrUnavailable)
}

func TestOpen_NeverShowsThePassword(t *testing.T) {
	t.Parallel()
	_, err := Open(Config{URL: "http://user:s3cret@x"})
	require.EqualError(t, err, "redis: url: not a redis:// or rediss:// address")
}
