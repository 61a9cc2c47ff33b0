package cancel_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// stale returns the stopped run of the session as the sweeper reads it.
func (b *bundle) stale(t *testing.T) store.StaleStop {
	t.Helper()
	stops, err := b.store.StaleStops(t.Context(), []int{session.Partition(b.skey)}, -time.Second, 10)
	require.NoError(t, err)
	require.Len(t, stops, 1)
	return stops[0]
}

func TestEndStale_EndsAQueuedAndARunningRunInTheCancelledForm(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"queued": false, "running": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := b.admit(t, store.KindUser, "")
			if running {
				b.claim(t)
			}
			b.admit(t, store.KindUser, "")
			b.stop(t, "")
			stop := b.stale(t)
			require.NoError(t, b.EndStale(t.Context(), stop))

			run, err := b.store.Run(t.Context(), first.RunID)
			require.NoError(t, err)
			require.Equal(t, store.RunCancelled, run.State)
			s := b.session(t)
			require.Equal(t, store.Queued, s.State, "the next message is next")
			require.NotEqual(t, first.RunID, s.RunID)
			require.Len(t, b.rec.runs, 1)
			require.Equal(t, s.RunID, b.rec.runs[0].RunID)
			require.Equal(t, event.RunFinished, b.rec.events[0].Type)

			require.NoError(t, b.EndStale(t.Context(), stop), "somebody else was faster")
			require.Equal(t, s, b.session(t))
			require.Len(t, b.rec.runs, 1)
		})
	}
}

// admitBody stores a row as somebody has sent it from a chat.
func (b *bundle) admitBody(t *testing.T, m store.AdmitMessage, chat string) store.Admitted {
	t.Helper()
	b.n++
	body, err := json.Marshal(event.Message{
		ReplyTo: event.Address{Platform: "telegram", ChatID: chat}, Command: &event.Command{Name: "stop"},
	})
	require.NoError(t, err)
	m.SKey, m.Tenant, m.SessionKey, m.AgentID, m.RunClass = b.skey, "default", "chat", "helper", "fast"
	m.UID, m.Body, m.SessionID, m.RunID, m.Traceparent = fmt.Sprint("uid", b.n), body, uuid.New(), uuid.New(), fmt.Sprint("trace", b.n)
	got, err := b.store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
	require.NoError(t, err)
	return got[0]
}

func TestEndStale_ConfirmsToWhoHasStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.admitBody(t, store.AdmitMessage{Kind: store.KindUser, WantsRun: true}, "asked")
	b.claim(t)
	b.admitBody(t, store.AdmitMessage{Kind: store.KindUser, WantsRun: true}, "waits")
	b.admitBody(t, store.AdmitMessage{Kind: store.KindStop, Stop: true, Wakes: true}, "stopped")
	require.NoError(t, b.EndStale(t.Context(), b.stale(t)))

	require.Equal(t, "Stopped. 1 message is waiting.", b.confirmation(t, first.RunID))
	require.Equal(t, []dispatch.Delivery{{SKey: b.skey, Platform: "telegram", OutSeq: 1, Traceparent: "trace3"}}, b.rec.deliveries)
	require.Equal(t, "stopped", b.rec.events[0].Address.ChatID)
}

func TestEndStale_OfAnInterruptionConfirmsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.admitBody(t, store.AdmitMessage{Kind: store.KindUser, WantsRun: true}, "asked")
	b.claim(t)
	b.admitBody(t, store.AdmitMessage{Kind: store.KindUser, WantsRun: true, Interrupt: true}, "interrupts")
	require.NoError(t, b.EndStale(t.Context(), b.stale(t)))

	replies, err := b.store.RunReplies(t.Context(), first.RunID)
	require.NoError(t, err)
	require.Empty(t, replies)
	require.Empty(t, b.rec.deliveries)
	require.Len(t, b.rec.runs, 1)
	require.Equal(t, []event.Type{event.RunFinished, event.ProcessingCompleted}, []event.Type{b.rec.events[0].Type, b.rec.events[1].Type})
	require.Equal(t, "asked", b.rec.events[0].Address.ChatID)
}
