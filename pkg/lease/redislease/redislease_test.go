package redislease

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/lease/leasetest"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/netproxy"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

const soon = 15 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redisserver.IgnoreProbes()) }

func open(t *testing.T, cfg Config) *Leases {
	t.Helper()
	return openWithin(t, cfg, timeout)
}

func openWithin(t *testing.T, cfg Config, timeout time.Duration) *Leases {
	t.Helper()
	l, err := newLeases(cfg, timeout)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestLeases_PassTheSuiteOnRedis(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(t *testing.T) leasetest.Backend {
		t.Helper()
		server := redisserver.New(t)
		l := open(t, Config{URL: server.URL()})
		admin := open(t, Config{URL: server.URL()}).client
		return leasetest.Backend{
			Leases:  l,
			Advance: func(d time.Duration) { age(t, admin, d) },
			Forget:  func() { require.NoError(t, server.FlushAll()) },
		}
	})
}

// age makes everything d older, as nobody can wait that long: expiry comes nearer, and routers were last seen earlier.
func age(t *testing.T, c *redis.Client, d time.Duration) {
	t.Helper()
	ctx := t.Context()
	keys, err := c.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		left, err := c.PTTL(ctx, key).Result()
		require.NoError(t, err)
		if left > 0 {
			require.NoError(t, c.PExpire(ctx, key, left-d).Err()) // not positive: deleted
		}
	}
	members, err := c.ZRangeWithScores(ctx, routersKey, 0, -1).Result()
	require.NoError(t, err)
	for _, m := range members {
		m.Score -= float64(d.Milliseconds())
		require.NoError(t, c.ZAdd(ctx, routersKey, m).Err())
	}
}

func TestLeases_PassTheSuiteOnMiniredis(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(t *testing.T) leasetest.Backend {
		t.Helper()
		server := redisserver.NewMini(t)
		now := time.Now()
		server.SetTime(now)
		return leasetest.Backend{
			// It takes its time over a pipeline of scripts.
			Leases: openWithin(t, Config{URL: "redis://" + server.Addr()}, soon),
			Advance: func(d time.Duration) {
				now = now.Add(d)
				server.SetTime(now)
				server.FastForward(d)
			},
			Forget: server.FlushAll,
		}
	})
}

func one(gen int64) []lease.Lease {
	return []lease.Lease{{SKey: "s", Gen: gen, RunID: "run", Holder: "w1/n1"}}
}

func TestAcquire_OfTheSameLeaseIsGrantedOnce(t *testing.T) {
	t.Parallel()
	l := open(t, Config{URL: redisserver.New(t).URL()})
	const workers = 16
	grants := make([]lease.Grant, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			got, err := l.Acquire(t.Context(), []lease.Lease{{SKey: "s", Gen: 1, RunID: "run", Holder: fmt.Sprintf("w%d/n", i)}})
			if err == nil {
				grants[i] = got[0]
			}
		})
	}
	wg.Wait()
	var winners int
	for _, g := range grants {
		if g.OK {
			winners++
			continue
		}
		require.Equal(t, int64(1), g.Held.Gen)
	}
	require.Equal(t, 1, winners)
}

func TestLeases_SurviveTheLossOfData(t *testing.T) {
	t.Parallel()
	server := redisserver.New(t)
	l := open(t, Config{URL: server.URL()})
	before, err := l.Boot(t.Context())
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), one(1))
	require.NoError(t, err)

	require.NoError(t, server.RestartEmpty())
	await.NoError(t, soon, func() error { return l.Ready(t.Context()) })
	after, err := l.Boot(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	// The scripts are gone too.
	renewed, err := l.Renew(t.Context(), one(1))
	require.NoError(t, err)
	require.Equal(t, []lease.Renewed{lease.Absent}, renewed)
	grants, err := l.Acquire(t.Context(), one(2))
	require.NoError(t, err)
	require.Equal(t, []lease.Grant{{OK: true}}, grants)
}

func TestRunBatch_LoadsAScriptThatTheServerForgot(t *testing.T) {
	t.Parallel()
	l := open(t, Config{URL: redisserver.New(t).URL()})
	for range 2 {
		require.NoError(t, l.client.ScriptFlush(t.Context()).Err())
		grants, err := l.Acquire(t.Context(), append(one(1), lease.Lease{SKey: "s2", Gen: 1, RunID: "run", Holder: "w1/n1"}))
		require.NoError(t, err)
		require.Equal(t, []lease.Grant{{OK: true}, {OK: true}}, grants)
	}
}

func TestLeases_AreUnavailableWithinSecondsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redisserver.New(t)
	proxy := netproxy.New(t, server.Addr())
	l := open(t, Config{URL: "redis://" + proxy.Addr()})
	require.NoError(t, l.Ready(t.Context()))
	proxy.Mute()
	requireAllUnavailable(t, l)
	proxy.Restore()
	await.NoError(t, soon, func() error { return l.Ready(t.Context()) })
	server.Kill()
	requireAllUnavailable(t, l)
}

func requireAllUnavailable(t *testing.T, l *Leases) {
	t.Helper()
	type result struct {
		err  error
		took time.Duration
	}
	var (
		wg      sync.WaitGroup
		results sync.Map
	)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"acquire":  func() error { _, err := l.Acquire(ctx, one(1)); return err },
		"reserve":  func() error { _, err := l.Reserve(ctx, one(1)); return err },
		"renew":    func() error { _, err := l.Renew(ctx, one(1)); return err },
		"release":  func() error { return l.Release(ctx, one(1)) },
		"lookup":   func() error { _, err := l.Lookup(ctx, []string{"s"}); return err },
		"join":     func() error { _, err := l.Join(ctx, "r1"); return err },
		"leave":    func() error { return l.Leave(ctx, "r1") },
		"own":      func() error { _, err := l.Own(ctx, "r1", []int{1}); return err },
		"disown":   func() error { return l.Disown(ctx, "r1", []int{1}) },
		"boot":     func() error { _, err := l.Boot(ctx); return err },
		"eviction": func() error { _, err := l.CheckEviction(ctx); return err },
		"ready":    func() error { return l.Ready(ctx) },
	} {
		wg.Go(func() {
			start := time.Now()
			err := call()
			results.Store(name, result{err, time.Since(start)})
		})
	}
	wg.Wait()
	results.Range(func(name, v any) bool {
		require.ErrorIs(t, v.(result).err, lease.ErrUnavailable, name)
		require.Less(t, v.(result).took, 4*timeout, name)
		return true
	})
}

func TestCheckEviction_JudgesThePolicy(t *testing.T) {
	t.Parallel()
	l := open(t, Config{URL: redisserver.New(t).URL()})
	for policy, want := range map[string]struct{ warning, err string }{
		"noeviction":   {},
		"volatile-lru": {warning: "redis: maxmemory-policy is volatile-lru, which may evict leases; set noeviction"},
		"allkeys-lfu":  {err: "redis: maxmemory-policy is allkeys-lfu, which evicts leases; set noeviction"},
	} {
		require.NoError(t, l.client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		warning, err := l.CheckEviction(t.Context())
		require.Equal(t, want.warning, warning, policy)
		if want.err == "" {
			require.NoError(t, err, policy)
			continue
		}
		require.EqualError(t, err, want.err)
		require.NotErrorIs(t, err, lease.ErrUnavailable)
	}
}

func TestCheckEviction_WarnsWhereThePolicyCannotBeRead(t *testing.T) {
	t.Parallel()
	const want = "redis: maxmemory-policy cannot be read; it must be noeviction"
	for name, url := range map[string]string{
		"no permission": redisserver.New(t, "--user", "default", "on", "nopass", "~*", "+@all", "-config").URL(),
		"no command":    redisserver.New(t, "--rename-command", "CONFIG", "").URL(),
	} {
		warning, err := open(t, Config{URL: url}).CheckEviction(t.Context())
		require.NoError(t, err, name)
		require.Equal(t, want, warning, name)
	}
}

func TestOpen_NeverShowsThePassword(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	server := redisserver.New(t, "--requirepass", "right")
	for name, cfg := range map[string]Config{
		"wrong password":     {URL: server.URL(), Password: secret},
		"in the url":         {URL: "redis://:" + secret + "@" + server.Addr()},
		"nobody listens":     {URL: "redis://:" + secret + "@127.0.0.1:1"},
		"url is malformed":   {URL: "redis://:" + secret + "@%zz"},
		"scheme is unknown":  {URL: "http://:" + secret + "@127.0.0.1"},
		"port is no number":  {URL: "redis://:" + secret + "@127.0.0.1:port"},
		"no scheme":          {URL: secret},
		"database is a word": {URL: "redis://:" + secret + "@127.0.0.1/" + secret},
	} {
		l, err := Open(t.Context(), cfg)
		if err == nil {
			_, err = l.Acquire(t.Context(), one(1))
			require.ErrorIs(t, err, lease.ErrUnavailable, name)
			require.NoError(t, l.Close())
		}
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), secret, name)
	}
	ok := open(t, Config{URL: server.URL(), Password: "right"})
	require.NoError(t, ok.Ready(t.Context()))
}

func TestLookup_TakesAForeignValueForNone(t *testing.T) {
	t.Parallel()
	server := redisserver.New(t)
	l := open(t, Config{URL: server.URL()})
	require.NoError(t, l.client.Set(t.Context(), leaseKey("s"), "nonsense", 0).Err())
	found, err := l.Lookup(t.Context(), []string{"s"})
	require.NoError(t, err)
	require.Equal(t, []*lease.Lease{nil}, found)
	grants, err := l.Acquire(t.Context(), one(1))
	require.NoError(t, err)
	require.Equal(t, []lease.Grant{{OK: true}}, grants)
}

func TestKeys_UseHashTags(t *testing.T) {
	t.Parallel()
	l := open(t, Config{URL: redisserver.New(t).URL()})
	ctx := t.Context()
	_, err := l.Acquire(ctx, one(1))
	require.NoError(t, err)
	_, err = l.Own(ctx, "r1", []int{7})
	require.NoError(t, err)
	_, err = l.Join(ctx, "r1")
	require.NoError(t, err)
	_, err = l.Boot(ctx)
	require.NoError(t, err)
	keys, err := l.client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"l:{s}", "p:{07}", "r:routers", "boot"}, keys)
	require.Equal(t, "1;run;w1/n1", l.client.Get(ctx, "l:{s}").Val())
}
