package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
	"github.com/hermes-runtime/hermes/services/router/internal/partition"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bell remembers what was rung.
type bell struct {
	mu         sync.Mutex
	runs       []dispatch.Run
	deliveries []dispatch.Delivery
}

func (b *bell) Publish(_ context.Context, runs []dispatch.Run, deliveries []dispatch.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, runs...)
	b.deliveries = append(b.deliveries, deliveries...)
}

func (b *bell) take() ([]dispatch.Run, []dispatch.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs, deliveries := b.runs, b.deliveries
	b.runs, b.deliveries = nil, nil
	return runs, deliveries
}

// leases answers with what a test sets.
type leases struct {
	boot string
	held map[string]*lease.Lease
	err  error
}

func (l *leases) Boot(context.Context) (string, error) { return l.boot, l.err }

func (l *leases) Lookup(_ context.Context, skeys []string) ([]*lease.Lease, error) {
	out := make([]*lease.Lease, len(skeys))
	for i, k := range skeys {
		out[i] = l.held[k]
	}
	return out, l.err
}

// downStore is a store that can be switched off.
type downStore struct {
	Store
	down bool
	// slow: only the queued runs are not found.
	slow bool
}

func (s *downStore) Ready(ctx context.Context) error {
	if s.down {
		return store.ErrUnavailable
	}
	return s.Store.Ready(ctx)
}

func (s *downStore) QueuedRuns(
	ctx context.Context, partitions []int, age time.Duration, after string, limit int,
) ([]store.QueuedRun, string, error) {
	if s.down || s.slow {
		return nil, "", fmt.Errorf("query: %w", store.ErrUnavailable)
	}
	return s.Store.QueuedRuns(ctx, partitions, age, after, limit)
}

type bundle struct {
	mem    *memstore.Store
	store  *downStore
	leases *leases
	bell   *bell
	*Sweeper
}

func setup(t *testing.T) *bundle {
	t.Helper()
	mem := memstore.New()
	b := &bundle{
		mem: mem, store: &downStore{Store: mem}, bell: &bell{},
		leases: &leases{boot: "one", held: map[string]*lease.Lease{}},
	}
	s, err := New(Config{Every: time.Second, Slots: 10}, Deps{
		Store: b.store, Leases: b.leases, Doorbells: b.bell, Owned: partition.All,
		Logger: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
	})
	require.NoError(t, err)
	b.Sweeper = s
	return b
}

func (b *bundle) admit(t *testing.T, chat string, notice *store.NewReply) (skey string, res store.Admitted) {
	t.Helper()
	skey = session.SKey("default", chat)
	got, err := b.mem.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: skey, Tenant: "default", SessionKey: chat, AgentID: "default", RunClass: "fast", UID: uuid.NewString(),
		Kind: store.KindUser, Body: json.RawMessage(`{}`), SessionID: uuid.New(), RunID: uuid.New(),
		WantsRun: notice == nil, Notice: notice,
	}}})
	require.NoError(t, err)
	return skey, got[0]
}

// after sweeps at an age that is reached from now on.
func (b *bundle) after(t *testing.T, d time.Duration) ([]dispatch.Run, []dispatch.Delivery) {
	t.Helper()
	<-time.After(d) // virtual time: tests run in a bubble
	b.sweep(t.Context())
	return b.bell.take()
}

func TestSweep_RingsQueuedRunsByAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		skey, res := b.admit(t, "a", nil)
		runs, _ := b.after(t, time.Second)
		require.Empty(t, runs, "the first two seconds belong to the admission's own ring")

		want := dispatch.Run{SKey: skey, Tenant: "default", Class: "fast", Gen: res.Gen, RunID: res.RunID}
		for _, step := range []struct {
			wait time.Duration
			n    int64
		}{{time.Second, 0}, {2 * time.Second, 1}, {4 * time.Second, 2}, {56 * time.Second, 5}, {60 * time.Second, 6}} {
			want.N = step.n
			runs, _ = b.after(t, step.wait)
			require.Equal(t, []dispatch.Run{want}, runs)
		}
	})
}

func TestSweep_LeavesRunsThatALeaseOfTheirGenerationHolds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gen  int64
		rung bool
	}{"lower": {0, true}, "same": {1, false}, "higher": {2, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				skey, res := b.admit(t, "a", nil)
				require.EqualValues(t, 1, res.Gen)
				b.leases.held[skey] = &lease.Lease{SKey: skey, Gen: c.gen, Holder: "w/1"}
				runs, _ := b.after(t, 3*time.Second)
				require.Equal(t, c.rung, len(runs) == 1)
			})
		})
	}
}

func TestSweep_WaitsLongerWhileRedisIsDownOrHasLostItsData(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*leases){
		"down": func(l *leases) { l.err = lease.ErrUnavailable },
		"lost": func(l *leases) { l.boot = "two" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.sweep(t.Context())
				_, res := b.admit(t, "a", nil)
				trouble(b.leases)
				runs, _ := b.after(t, 10*time.Second)
				require.Empty(t, runs)
				runs, _ = b.after(t, 20*time.Second)
				require.Len(t, runs, 1)
				require.Equal(t, res.RunID, runs[0].RunID)
			})
		})
	}
}

func TestSweep_GoesOnWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		const sessions = maxPages*pageSize + 10
		for i := range sessions {
			b.admit(t, fmt.Sprint("chat ", i), nil)
		}
		first, _ := b.after(t, 3*time.Second)
		require.Len(t, first, maxPages*pageSize)
		second, _ := b.after(t, time.Second)
		require.Len(t, second, 10)
		seen := map[uuid.UUID]bool{}
		for _, r := range append(first, second...) {
			seen[r.RunID] = true
		}
		require.Len(t, seen, sessions)
	})
}

func TestSweep_RingsDueDeliveriesWithTheirAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		skey, res := b.admit(t, "a", &store.NewReply{Platform: "webhook", Target: json.RawMessage(`{}`), Parts: json.RawMessage(`[]`)})
		_, due := b.after(t, time.Second)
		require.Empty(t, due, "a new row belongs to the admission's own ring")

		_, due = b.after(t, 3*time.Second)
		want := dispatch.Delivery{SKey: skey, Platform: "webhook", OutSeq: res.OutSeq}
		require.Equal(t, []dispatch.Delivery{want}, due)
		_, due = b.after(t, 80*time.Second)
		require.Empty(t, due, "the next ring comes after 90 s")

		claimed, err := b.mem.ClaimDeliveries(t.Context(), "s1", []store.DeliveryClaim{{SKey: skey, OutSeq: res.OutSeq}})
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		want.N = 1
		_, due = b.after(t, 61*time.Second)
		require.Equal(t, []dispatch.Delivery{want}, due, "a row that was claimed is rung under a new number")
	})
}

func TestSweep_LeavesDeliveriesAloneForAWhileAfterTheStoreWasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.admit(t, "a", &store.NewReply{Platform: "webhook", Target: json.RawMessage(`{}`), Parts: json.RawMessage(`[]`)})
		b.store.down = true
		_, due := b.after(t, 5*time.Second)
		require.Empty(t, due)
		b.store.down = false
		for range 10 {
			_, due = b.after(t, time.Second)
			require.Empty(t, due, "egress marks first what it sent")
		}
		_, due = b.after(t, time.Second)
		require.Len(t, due, 1)
	})
}

func TestSweeper_SweepsEverySecondUntilItIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.admit(t, "a", nil)
		require.NoError(t, b.Start(t.Context()))
		<-time.After(4500 * time.Millisecond)
		require.NoError(t, b.Stop(t.Context()))
		runs, _ := b.bell.take()
		require.Len(t, runs, 3, "at ages 2, 3 and 4 s")
		require.NoError(t, b.Stop(t.Context()))
	})
}
