package redisserver_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redisserver.IgnoreProbes()) }

func connect(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestServer_RestartsEmptyOnTheSameAddress(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	before := s.URL()
	c := connect(t, before)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, s.RestartEmpty())
	require.Equal(t, before, s.URL())
	require.ErrorIs(t, connect(t, s.URL()).Get(t.Context(), "k").Err(), redis.Nil)
}

func TestServer_FlushAllDeletesEverything(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	c := connect(t, s.URL())
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, s.FlushAll())
	require.ErrorIs(t, c.Get(t.Context(), "k").Err(), redis.Nil)
}

func TestServer_KillEndsIt(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	s.Kill()
	s.Kill()
	require.Error(t, connect(t, s.URL()).Ping(t.Context()).Err())
	require.Error(t, s.FlushAll())
}

func TestStart_PassesArgumentsAndReportsBadOnes(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t, "--requirepass", "secret")
	require.ErrorContains(t, connect(t, s.URL()).Ping(t.Context()).Err(), "NOAUTH")
	_, err := redisserver.Start("--no-such-setting", "1")
	require.ErrorContains(t, err, "no-such-setting")
}

func TestStart_SaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := redisserver.Start()
	require.ErrorIs(t, err, redisserver.ErrNotInstalled)
	require.ErrorContains(t, err, "apt-get install redis-server")
}

func TestNewMini_AnswersAndMovesItsClock(t *testing.T) {
	t.Parallel()
	m := redisserver.NewMini(t)
	c := connect(t, "redis://"+m.Addr())
	require.NoError(t, c.Set(t.Context(), "k", "v", time.Minute).Err())
	m.FastForward(2 * time.Minute)
	require.ErrorIs(t, c.Get(t.Context(), "k").Err(), redis.Nil)
}
