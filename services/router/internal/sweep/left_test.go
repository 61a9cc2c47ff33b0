package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/timer"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

func TestSweep_WakesWhatWasCollectedWhenItsTimeHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		skey := session.SKey("default", "a")
		_, err := b.mem.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
			SKey: skey, Tenant: "default", SessionKey: "a", AgentID: "default", RunClass: "fast", UID: "one", Kind: store.KindUser,
			Body: json.RawMessage(`{}`), SessionID: uuid.New(), RunID: uuid.New(), WantsRun: true,
			Collect: &store.Collect{Quiet: 10 * time.Second, Max: time.Minute},
		}}})
		require.NoError(t, err)
		runs, _ := b.after(t, 9*time.Second)
		require.Empty(t, runs)

		runs, _ = b.after(t, 2*time.Second)
		s, err := b.mem.Session(t.Context(), skey)
		require.NoError(t, err)
		require.Equal(t, store.Queued, s.State)
		require.Equal(t, uuid.Version(7), s.RunID.Version())
		require.Equal(t, []dispatch.Run{{SKey: skey, Tenant: "default", Class: "fast", Gen: s.Gen, RunID: s.RunID}}, runs)
		runs, _ = b.after(t, time.Second)
		require.Empty(t, runs, "it is woken once")
	})
}

// remains is a store in which a test leaves something behind.
type remains struct {
	Store
	next   []store.Doorbell
	frozen int
	old    int
	purges int
}

func (r *remains) SettleGaps(context.Context, []int, int) ([]store.Doorbell, error) {
	next := r.next
	r.next = nil
	return next, nil
}

func (r *remains) EndFrozen(_ context.Context, age time.Duration) (int, error) {
	if age != 10*time.Second {
		return 0, fmt.Errorf("asked for %s", age)
	}
	return r.frozen, nil
}

func (r *remains) Purge(_ context.Context, age time.Duration, limit int) (int, error) {
	if age != time.Hour {
		return 0, fmt.Errorf("asked for %s", age)
	}
	r.purges++
	n := min(r.old, limit)
	r.old -= n
	return n, nil
}

func TestSweep_RingsTheRowsBehindAGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Store = &remains{Store: b.mem, next: []store.Doorbell{{SKey: "s", OutSeq: 3, Platform: "webhook", Attempts: 2}}}
		_, due := b.after(t, time.Second)
		require.Equal(t, []dispatch.Delivery{{SKey: "s", Platform: "webhook", OutSeq: 3, N: -3}}, due, "under a number of its own")
		b.Owned = func() []int { return nil }
		b.Store = &remains{Store: b.mem, next: []store.Doorbell{{SKey: "s", OutSeq: 4}}}
		_, due = b.after(t, time.Second)
		require.Empty(t, due, "gaps belong to the owner of their partition")
	})
}

func TestSweep_EndsFrozenDatabaseSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Store = &remains{Store: b.mem, frozen: 2}
		n, err := b.endFrozen(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 2, n)
	})
}

func TestSweep_PurgesOldRowsInSmallBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		old := &remains{Store: b.mem, old: 2*purgeLimit + 1}
		b.Store = old
		b.after(t, time.Second)
		require.Zero(t, old.purges, "without a retention everything is kept")
		b.Retention = time.Hour
		for range purgeEvery {
			b.after(t, time.Second)
		}
		require.Equal(t, 1, old.purges)
		b.after(t, time.Second)
		b.after(t, time.Second)
		require.Equal(t, 3, old.purges, "while there are more")
		require.Zero(t, old.old)
		for range purgeEvery - 10 {
			b.after(t, time.Second)
		}
		require.Equal(t, 3, old.purges)
	})
}

// timer puts a timer into the store that says hello in a session of the API.
func (b *bundle) timer(t *testing.T, id, spec string, at time.Time) store.Timer {
	t.Helper()
	src := session.Source{Platform: "api", Account: "api", ChatID: "c", ChatType: "dm", UserID: "u"}
	key := session.Key(src, session.DefaultOptions())
	tm, err := timer.New(id, spec, at, &event.Message{
		Tenant: "default", SessionKey: key, SKey: session.SKey("default", key), Profile: "default", RunClass: "fast",
		Kind: event.KindMessage, Source: src, ReplyTo: event.Address{Platform: event.PlatformAPI}, Text: "hello",
	}, time.Now())
	require.NoError(t, err)
	b.admit(t, key, nil)
	require.NoError(t, b.mem.PutTimer(t.Context(), tm))
	return tm
}

func (b *bundle) timers(t *testing.T, skey string) []store.Timer {
	t.Helper()
	timers, err := b.mem.Timers(t.Context(), skey)
	require.NoError(t, err)
	return timers
}

func TestSweep_JoinsTheFiresThatWereMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		tm := b.timer(t, "t", "0 * * * *", time.Time{})
		b.after(t, 5*time.Hour+time.Minute)
		require.Len(t, h.sent, 1)
		require.Equal(t, bus.IngestSubject("default", tm.SKey), h.sent[0].Subject)
		m, err := event.Decode(h.sent[0].Data)
		require.NoError(t, err)
		require.Equal(t, []string{h.sent[0].ID, "hello", "timer:t"}, []string{m.UID, m.Text, m.PlatformMessageID})
		next := b.timers(t, tm.SKey)[0].NextAt
		require.True(t, next.After(time.Now()))
		require.LessOrEqual(t, time.Until(next), time.Hour)
	})
}

func TestFiring_NeverChoosesTheSameTimeAgain(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, now := range map[string]time.Time{"slow clock": due.Add(-time.Minute), "right": due, "late": due.Add(59 * time.Minute)} {
		b := setup(t)
		tm := b.timer(t, "t", "0 * * * *", due)
		next, _, _, err := firing(tm, now)
		require.NoError(t, err, name)
		require.Equal(t, due.Add(time.Hour), next, name)
	}
}

func TestSweep_DropsTimersThatCanNeverFire(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(tm *store.Timer, h *hands){
		"spec": func(tm *store.Timer, _ *hands) { tm.Spec = "tomorrow" },
		"body": func(tm *store.Timer, _ *hands) { tm.Body = json.RawMessage(`{"text": "x"}`) },
		"size": func(_ *store.Timer, h *hands) { h.err = bus.ErrTooLarge },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				h := b.hands()
				bad := b.timer(t, "bad", timer.Once, time.Now().Add(time.Minute))
				good := b.timer(t, "good", timer.Once, time.Now().Add(2*time.Minute))
				spoil(&bad, h)
				require.NoError(t, b.mem.PutTimer(t.Context(), bad))
				b.after(t, 90*time.Second)
				require.Equal(t, []store.Timer{good}, b.timers(t, good.SKey))
				h.err, h.sent = nil, nil
				b.after(t, time.Minute)
				require.Len(t, h.sent, 1)
				require.Empty(t, b.timers(t, good.SKey))
			})
		})
	}
}

func TestSweep_ASickStoreRestsDeliveriesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.hands()
		b.admit(t, "a", &store.NewReply{Platform: "webhook", Target: json.RawMessage(`{}`), Parts: json.RawMessage(`[]`)})
		b.store.slow = true // one rule gets no answer, the store lives
		for range 10 {
			_, due := b.after(t, time.Second)
			require.Empty(t, due, "connections may have been made again")
		}
		_, due := b.after(t, time.Second)
		require.Len(t, due, 1, "a rule that never works does not hold them back for ever")
		require.True(t, b.failing["queued"])
	})
}
