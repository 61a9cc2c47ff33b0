package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(pgserver.Wrap(m), redisserver.IgnoreProbes(), natsserver.IgnoreClock())
}

const (
	patience = 60 * time.Second
	streams  = 2
)

// cluster is what the routers of a test share.
type cluster struct {
	nats  *natsserver.Server
	redis *miniredis.Miniredis
	// redisURL stays the same while redis is down.
	redisURL string
	store    *memstore.Store
	// steps is how far the clock of the store has been set forward.
	steps atomic.Int64
	// configure may change the configuration of the routers.
	configure func(*config.Config)
	// bus publishes what an ingress would.
	bus *natsbus.Bus

	mu   sync.Mutex
	sent map[string][]string // skey -> uids in the order of the log
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{nats: natsserver.NewMemory(t), redis: miniredis.RunT(t), sent: map[string][]string{}}
	c.store = memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(time.Duration(c.steps.Load())) }))
	c.redisURL = "redis://" + c.redis.Addr()
	c.bus = c.connect(t)
	require.NoError(t, c.bus.EnsureStreams(t.Context()))
	return c
}

// step sets the clock of the store.
func (c *cluster) step(d time.Duration) { c.steps.Add(int64(d)) }

func (c *cluster) connect(t *testing.T) *natsbus.Bus {
	t.Helper()
	cfg := bus.DefaultConfig()
	cfg.Streams, cfg.Memory = streams, true
	b, err := natsbus.Connect(t.Context(), natsbus.Config{URL: c.nats.URL(), Streams: cfg}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// router starts a router with connections of its own. change may replace backends.
func (c *cluster) router(t *testing.T, id string, change func(*backends.Backends)) *App {
	t.Helper()
	leases, err := redislease.Open(t.Context(), redislease.Config{URL: c.redisURL})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, leases.Close()) })
	b := backends.Backends{
		Bus: c.connect(t), Leases: leases, Store: c.store, Logger: slog.New(slog.DiscardHandler),
		Traces: sdktrace.NewTracerProvider(), Meters: metricnoop.NewMeterProvider(),
	}
	if change != nil {
		change(&b)
	}
	cfg := config.Default()
	cfg.Router.ID = id
	if c.configure != nil {
		c.configure(&cfg)
	}
	a, err := build(cfg, b, timing{renewal: 50 * time.Millisecond, sweep: 50 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.WithoutCancel(t.Context()))) })
	return a
}

func message(platform, chat, id string) *event.Message {
	src := session.Source{Platform: platform, Account: "acc", ChatID: chat, ChatType: "dm", UserID: "u"}
	key := session.Key(src, session.DefaultOptions())
	return &event.Message{
		UID: event.UID("default", src, id, event.KindMessage, ""), Tenant: "default", SessionKey: key,
		SKey: session.SKey("default", key), Profile: "default", RunClass: "default", Kind: event.KindMessage, Source: src,
		ReplyTo: event.Address{Platform: platform, Account: "acc", ChatID: chat}, Text: "text " + id, PlatformMessageID: id,
	}
}

// publish puts a message into the log, as ingress does.
func (c *cluster) publish(t *testing.T, m *event.Message) {
	t.Helper()
	data, err := event.Encode(m)
	require.NoError(t, err)
	await.NoError(t, patience, func() error {
		_, err := c.bus.Publish(t.Context(), bus.Msg{Subject: bus.IngestSubject(m.Tenant, m.SKey), ID: m.UID, Data: data})
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[m.SKey] = append(c.sent[m.SKey], m.UID)
}

// chatter publishes messages of many sessions, one after the other within a session.
func (c *cluster) chatter(t *testing.T, name string, sessions, each int) {
	t.Helper()
	for n := range each {
		for s := range sessions {
			c.publish(t, message("webhook", fmt.Sprintf("%s-%d", name, s), fmt.Sprint(n)))
		}
	}
}

// requireAdmitted waits until all that was published is in the inbox, exactly once and in the order of the log.
func (c *cluster) requireAdmitted(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for skey, uids := range c.sent {
		await.NoError(t, patience, func() error {
			_, err := c.store.Submission(t.Context(), skey, uids[len(uids)-1])
			return err
		}, "session %s", skey)
		for i, uid := range uids {
			s, err := c.store.Submission(t.Context(), skey, uid)
			require.NoError(t, err)
			require.EqualValues(t, i+1, s.Seq, "message %d of session %s", i, skey)
		}
		s, err := c.store.Session(t.Context(), skey)
		require.NoError(t, err)
		require.EqualValues(t, len(uids), s.LastSeq, "nothing is admitted twice")
	}
}

// owned returns the partitions of a running router, from its coordinator.
func owned(a *App) []int { return a.partitions.Owned() }

func requireShared(t *testing.T, routers ...*App) {
	t.Helper()
	await.True(t, patience, func() bool {
		var all []int
		for _, r := range routers {
			all = append(all, owned(r)...)
		}
		slices.Sort(all)
		return len(slices.Compact(slices.Clone(all))) == session.Partitions && len(all) == session.Partitions
	}, "partitions are not shared out")
}

// admission waits for a message and returns what became of it.
func (c *cluster) admission(t *testing.T, m *event.Message) store.Submission {
	t.Helper()
	var s store.Submission
	await.NoError(t, patience, func() error {
		var err error
		s, err = c.store.Submission(t.Context(), m.SKey, m.UID)
		return err
	})
	return s
}

// dedupe forgets repetitions of ids.
func (c *cluster) dedupe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for skey, uids := range c.sent {
		seen := map[string]bool{}
		var first []string
		for _, uid := range uids {
			if !seen[uid] {
				seen[uid] = true
				first = append(first, uid)
			}
		}
		c.sent[skey] = first
	}
}

// fetch takes one message of a work queue.
func (c *cluster) fetch(t *testing.T, q bus.Queue) bus.Msg {
	t.Helper()
	w, err := c.bus.Work(t.Context(), q)
	require.NoError(t, err)
	var work []bus.Work
	await.NoError(t, patience, func() error {
		work, err = w.Fetch(t.Context(), 1, time.Second)
		if err == nil && len(work) == 0 {
			err = errors.New("nothing there")
		}
		return err
	})
	require.NoError(t, work[0].Ack())
	return work[0].Msg()
}
