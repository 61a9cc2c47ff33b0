package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

func TestRouters_AdmitEveryMessageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.router(t, "a", nil)
	c.chatter(t, "early", 20, 3)
	b, d := c.router(t, "b", nil), c.router(t, "d", nil)
	c.chatter(t, "middle", 40, 5)
	requireShared(t, a, b, d)
	c.chatter(t, "middle", 40, 2) // the same ids: the broker drops some, the inbox the others
	c.chatter(t, "late", 20, 3)
	c.dedupe()
	c.requireAdmitted(t)
}

func TestRouter_ThatIsStoppedHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.router(t, "a", nil), c.router(t, "b", nil)
	requireShared(t, a, b)
	c.chatter(t, "before", 30, 2)
	require.NoError(t, a.Stop(t.Context()))
	c.chatter(t, "after", 30, 2)
	requireShared(t, b) // in this redis no key ends by itself: the first router gave its partitions up
	c.requireAdmitted(t)
}

func TestRouters_ThatReadTheSamePartitionsAdmitOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.redis.Close() // every router takes all partitions
	a, b := c.router(t, "a", nil), c.router(t, "b", nil)
	require.Len(t, owned(a), session.Partitions)
	require.Len(t, owned(b), session.Partitions)
	c.chatter(t, "both", 30, 6)
	c.requireAdmitted(t)
}

// gate is a store that holds admissions back.
type gate struct {
	store.Store
	closed  atomic.Bool
	arrived chan struct{}
	open    chan struct{}
	failed  atomic.Int64
}

func (g *gate) Admit(ctx context.Context, adm store.Admission) ([]store.Admitted, error) {
	if g.closed.CompareAndSwap(true, false) {
		close(g.arrived)
		<-g.open
	}
	res, err := g.Store.Admit(ctx, adm)
	var moved *store.OffsetMovedError
	if errors.As(err, &moved) {
		g.failed.Add(1)
	}
	return res, err
}

func TestRouter_WhosePartitionsWereTakenCommitsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	g := &gate{Store: c.store, arrived: make(chan struct{}), open: make(chan struct{})}
	c.router(t, "zombie", func(b *backends.Backends) { b.Store = g })
	first := message("webhook", "chat", "1")
	c.publish(t, first)
	c.requireAdmitted(t)

	g.closed.Store(true)
	second := message("webhook", "chat", "2")
	c.publish(t, second)
	<-g.arrived // the zombie is about to commit, and stands still
	p := session.Partition(first.SKey)
	require.NoError(t, c.redis.Set(fmt.Sprintf("p:{%s}", bus.PartitionToken(p)), "other"))
	offs, err := c.store.Offsets(t.Context(), []int{p})
	require.NoError(t, err)
	require.Len(t, offs, 1)
	stolen := offs[0]
	stolen.LastSeq, stolen.LastUID = stolen.LastSeq+1, second.UID // the other router has admitted it, says the offset
	require.NoError(t, c.store.SetOffset(t.Context(), &offs[0], stolen))
	close(g.open)

	await.True(t, patience, func() bool { return g.failed.Load() > 0 })
	_, err = c.store.Submission(t.Context(), second.SKey, second.UID)
	require.ErrorIs(t, err, store.ErrNotFound)
	offs, err = c.store.Offsets(t.Context(), []int{p})
	require.NoError(t, err)
	require.Equal(t, stolen, offs[0])
}

func TestRouter_DispatchesRunsAndNotices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.router(t, "a", nil)
	m := message("webhook", "chat", "1")
	help := message("webhook", "other", "1")
	help.Kind, help.Command = event.KindCommand, &event.Command{Name: "help"}
	c.publish(t, m)
	c.publish(t, help)
	c.requireAdmitted(t)

	var run runv1.Dispatch
	require.NoError(t, proto.Unmarshal(c.fetch(t, bus.RunQueue("default")).Data, &run))
	s, err := c.store.Session(t.Context(), m.SKey)
	require.NoError(t, err)
	require.True(t, proto.Equal(&runv1.Dispatch{Skey: m.SKey, Gen: s.Gen, RunId: s.RunID.String()}, &run))
	lease, err := c.redis.Get("l:{" + m.SKey + "}")
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%d;%s;router/%s", s.Gen, s.RunID, a.ID()), lease)

	var bell deliveryv1.Doorbell
	require.NoError(t, proto.Unmarshal(c.fetch(t, bus.OutQueue("webhook")).Data, &bell))
	require.True(t, proto.Equal(&deliveryv1.Doorbell{Skey: help.SKey, OutSeq: 1}, &bell))
}

func TestRouter_AnswersStatusAndHelp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	for i, step := range []struct{ name, want string }{
		{"status", "No messages yet."}, {"help", "**Commands**"}, {"dance", "Unknown command `/dance`"},
	} {
		m := message(event.PlatformAPI, "chat", fmt.Sprint(i))
		m.Kind, m.Command = event.KindCommand, &event.Command{Name: step.name}
		c.publish(t, m)
		var parts []channel.Part
		require.NoError(t, json.Unmarshal(c.admission(t, m).Notice, &parts))
		require.Len(t, parts, 1)
		require.True(t, parts[0].Notice)
		require.Contains(t, parts[0].Markdown, step.want)
	}
	busy := message(event.PlatformAPI, "chat", "busy")
	asks := message(event.PlatformAPI, "chat", "asks")
	asks.Kind, asks.Command = event.KindCommand, &event.Command{Name: "status"}
	c.publish(t, busy)
	c.publish(t, asks)
	require.Contains(t, string(c.admission(t, asks).Notice), "Waiting for a free worker")
}

func TestRouter_ParksPoisonAndAdmitsTheRest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before, after := message("webhook", "chat", "1"), message("webhook", "chat", "2")
	c.publish(t, before)
	_, err := c.bus.Publish(t.Context(), bus.Msg{Subject: bus.IngestSubject("default", before.SKey), ID: "broken", Data: []byte{0xff}})
	require.NoError(t, err)
	c.publish(t, after)
	c.router(t, "a", nil)
	c.requireAdmitted(t)
	dead := c.store.Letters()
	require.Len(t, dead, 1)
	require.Equal(t, "broken", dead[0].Ref)
}

func TestRouter_AttachesAgainAfterTheBrokerLostEverything(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	c.chatter(t, "before", 20, 2)
	c.requireAdmitted(t)
	require.NoError(t, c.nats.Restart())
	c.chatter(t, "before", 20, 2) // platforms repeat what they are not sure of
	c.dedupe()
	c.chatter(t, "after", 20, 2)
	c.requireAdmitted(t)
}

func TestRouter_AdmitsAndDispatchesWithoutRedis(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.router(t, "a", nil)
	c.redis.Close()
	c.chatter(t, "chat", 10, 2)
	c.requireAdmitted(t)
	var run runv1.Dispatch
	require.NoError(t, proto.Unmarshal(c.fetch(t, bus.RunQueue("default")).Data, &run))
	require.Contains(t, c.sent, run.GetSkey())
	require.Len(t, owned(a), session.Partitions)
}

func TestRouter_SweepsRunsWhoseDoorbellWasLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := message("webhook", "chat", "1")
	_, err := c.store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey, AgentID: "default", RunClass: "default", UID: m.UID,
		Kind: store.KindUser, Body: json.RawMessage(`{}`), SessionID: uuid.New(), RunID: uuid.New(), WantsRun: true,
	}}})
	require.NoError(t, err)
	c.router(t, "a", nil)
	msg := c.fetch(t, bus.RunQueue("default"))
	require.Equal(t, bus.RunSubject("default", m.SKey), msg.Subject)
}

func TestNew_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := New(config.Default(), backends.Backends{})
	require.EqualError(t, err, "router: no bus\nrouter: no leases\nrouter: no store\nrouter: no logger\nrouter: no traces\nrouter: no meters")
}

func TestChecks_OnlyTheBrokerIsRequired(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.router(t, "", nil)
	require.NotEmpty(t, a.ID())
	optional := map[string]bool{}
	for _, check := range a.Checks() {
		require.NoError(t, check.Ready(t.Context()))
		optional[check.Name] = check.Optional
	}
	require.Equal(t, map[string]bool{"nats": false, "redis": true, "postgres": true}, optional)
	c.redis.Close()
	require.Error(t, a.Checks()[1].Ready(t.Context()))
}

func TestRouter_CountsWhatItDoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	reader := sdkmetric.NewManualReader()
	c.router(t, "a", func(b *backends.Backends) { b.Meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)) })
	c.chatter(t, "chat", 5, 2)
	_, err := c.bus.Publish(t.Context(), bus.Msg{Subject: bus.IngestSubject("default", message("webhook", "chat-0", "0").SKey), Data: []byte{0xff}})
	require.NoError(t, err)
	c.requireAdmitted(t)

	want := map[string]int64{
		"hermes_partitions_owned": 64, "hermes_admitted_total": 10, "hermes_dead_letters_total": 1,
		"hermes_sessions": 5, "hermes_workers_wanted": 1,
	}
	await.True(t, patience, func() bool {
		got := collect(t, reader)
		for name, n := range want {
			if got[name] != n {
				return false
			}
		}
		return true
	}, "metrics are %v", want)
}

// collect sums the points of every integer metric.
func collect(t *testing.T, reader sdkmetric.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	got := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					got[m.Name] += p.Value
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					got[m.Name] += p.Value
				}
			}
		}
	}
	return got
}
