package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
	"github.com/hermes-runtime/hermes/services/internal/timer"
)

// hands remembers what was taken, ended and published.
type hands struct {
	mu    sync.Mutex
	taken []store.ActiveRun
	ended []store.StaleStop
	sent  []bus.Msg
	err   error
}

func (h *hands) Take(_ context.Context, run store.ActiveRun, _ string, _ time.Duration) (takeover.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = append(h.taken, run)
	return takeover.Result{}, h.err
}

func (h *hands) EndStale(_ context.Context, s store.StaleStop) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, s)
	return h.err
}

func (h *hands) Publish(_ context.Context, m bus.Msg) (bus.Ack, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, m)
	return bus.Ack{}, h.err
}

func (b *bundle) hands() *hands {
	h := &hands{}
	b.Taker, b.Ender, b.Bus = h, h, h
	return h
}

func (b *bundle) claim(t *testing.T, skey string, res store.Admitted) {
	t.Helper()
	claimed, err := b.mem.Claim(t.Context(), []store.ClaimRequest{{
		Fence: store.Fence{SKey: skey, Gen: res.Gen, RunID: res.RunID, Owner: "w/1"},
	}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
}

func (b *bundle) beat(t *testing.T) {
	t.Helper()
	b.beatAs(t, uuid.NameSpaceDNS)
}

func (b *bundle) beatAs(t *testing.T, boot uuid.UUID) {
	t.Helper()
	require.NoError(t, b.mem.Heartbeat(t.Context(), store.WorkerBeat{WorkerID: "w", Boot: boot, Slots: 1}))
}

func TestSweep_TakesOverARunWhoseWorkerIsSilentAndWhoseLeaseIsGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held  *lease.Lease
		taken bool
	}{
		"no lease":           {nil, true},
		"lease of the owner": {&lease.Lease{Gen: 1, Holder: "w/1"}, false},
		"lease of another":   {&lease.Lease{Gen: 1, Holder: "w/2"}, true},
		"lease of before":    {&lease.Lease{Gen: 0, Holder: "w/1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				h := b.hands()
				skey, res := b.admit(t, "a", nil)
				b.beat(t)
				b.claim(t, skey, res)
				b.leases.held[skey] = c.held
				b.after(t, 14*time.Second)
				require.Empty(t, h.taken)
				b.after(t, 2*time.Second)
				require.Equal(t, c.taken, len(h.taken) == 1)
			})
		})
	}
}

func TestSweep_LeavesALivingWorkerHalfAMinuteToClaimAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		skey, res := b.admit(t, "a", nil)
		b.claim(t, skey, res)
		for range 30 {
			b.beat(t)
			b.after(t, time.Second)
			require.Empty(t, h.taken)
		}
		b.beat(t)
		b.after(t, time.Second)
		require.Len(t, h.taken, 1)
	})
}

func TestSweep_TrustsHeartbeatsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		b.leases.err = lease.ErrUnavailable
		skey, res := b.admit(t, "a", nil)
		b.claim(t, skey, res)
		for range 60 {
			b.beat(t)
			b.after(t, time.Second)
		}
		require.Empty(t, h.taken)
		b.after(t, 16*time.Second)
		require.Len(t, h.taken, 1)
	})
}

func TestSweep_EndsAStopThatNobodyActsOnAfterTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		skey, res := b.admit(t, "a", nil)
		_, err := b.mem.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
			SKey: skey, Tenant: "default", SessionKey: "a", AgentID: "default", RunClass: "fast", UID: uuid.NewString(),
			Kind: store.KindStop, Body: json.RawMessage(`{}`), SessionID: uuid.New(), RunID: uuid.New(), Stop: true,
		}}})
		require.NoError(t, err)
		b.after(t, 9*time.Second)
		require.Empty(t, h.ended)
		b.after(t, 2*time.Second)
		require.Len(t, h.ended, 1)
		require.Equal(t, res.RunID, h.ended[0].RunID)
	})
}

func TestSweep_FiresADueTimerOnceUnderOneId(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		src := session.Source{Platform: "api", Account: "api", ChatID: "c", ChatType: "dm", UserID: "u"}
		key := session.Key(src, session.DefaultOptions())
		m := &event.Message{
			Tenant: "default", SessionKey: key, SKey: session.SKey("default", key), Profile: "default", RunClass: "fast",
			Kind: event.KindMessage, Source: src, ReplyTo: event.Address{Platform: event.PlatformAPI}, Text: "stand up",
		}
		b.admit(t, key, nil)
		once, err := timer.New("t", timer.Once, time.Now().Add(time.Minute), m, time.Now())
		require.NoError(t, err)
		require.NoError(t, b.mem.PutTimer(t.Context(), once))
		b.after(t, 59*time.Second)
		require.Empty(t, h.sent)

		h.err = errors.New("broker is down")
		b.after(t, 2*time.Second)
		h.err = nil
		b.after(t, time.Second)
		require.Len(t, h.sent, 2)
		require.Equal(t, h.sent[0].ID, h.sent[1].ID, "the inbox takes it once")
		b.after(t, time.Hour)
		require.Len(t, h.sent, 2, "it has moved on")
	})
}

func TestSweep_ARuleThatFailsKeepsNoOtherFromRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		h.err = errors.New("cannot")
		one, first := b.admit(t, "a", nil)
		two, second := b.admit(t, "b", nil)
		b.claim(t, one, first)
		b.claim(t, two, second)
		b.admit(t, "c", &store.NewReply{Platform: "webhook", Target: json.RawMessage(`{}`), Parts: json.RawMessage(`[]`)})
		_, due := b.after(t, 20*time.Second)
		require.Len(t, h.taken, 2, "one run that cannot be taken keeps no other")
		require.Len(t, due, 1)
		require.True(t, b.failing["running"])
		h.err = nil
		b.after(t, time.Second)
		require.False(t, b.failing["running"])
	})
}
