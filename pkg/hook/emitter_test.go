package hook_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a publisher that remembers, or fails.
type recorder struct {
	mu   sync.Mutex
	msgs []bus.Msg
	err  error
	gate chan struct{}
}

func (r *recorder) Publish(context.Context, bus.Msg) (bus.Ack, error) { return bus.Ack{}, r.err }

func (r *recorder) PublishAll(_ context.Context, msgs []bus.Msg) []error {
	if r.gate != nil {
		<-r.gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		errs[i] = r.err
		if r.err == nil {
			r.msgs = append(r.msgs, m)
		}
	}
	return errs
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestEmitter_PublishesInOrderUntilStopped(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	e := hook.NewEmitter(rec, quiet())
	require.NoError(t, e.Start(t.Context()))
	e.Emit(event.Lifecycle{Type: event.MessageReceived, SKey: "s", MsgUID: "m"})
	e.Emit(event.Lifecycle{Type: event.RunStarted, SKey: "s", MsgUID: "m", RunID: "r", Gen: 2, N: 1})
	e.Emit(event.Lifecycle{Type: event.ResponseSent, SKey: "s", RunID: "r", OutSeq: 3})
	require.NoError(t, e.Stop(t.Context()))

	ids := make([]string, 0, len(rec.msgs))
	for _, m := range rec.msgs {
		ids = append(ids, m.ID)
	}
	require.Equal(t, []string{"m:message_received", "r:2:run_started:1", "s:3:response_sent"}, ids)
	require.Equal(t, bus.EventSubject("s", "run_started"), rec.msgs[1].Subject)
	got, err := event.DecodeLifecycle(rec.msgs[0].Data)
	require.NoError(t, err)
	require.True(t, rec.msgs[0].Lazy, "one answer is enough for all")
	require.Equal(t, "m", got.MsgUID)
	require.False(t, got.At.IsZero())
	require.Zero(t, e.Dropped())
}

func TestEmitter_CountsWhatABrokerThatIsDownLoses(t *testing.T) {
	t.Parallel()
	rec := &recorder{err: errors.New("down")}
	e := hook.NewEmitter(rec, quiet())
	require.NoError(t, e.Start(t.Context()))
	e.Emit(event.Lifecycle{Type: event.MessageReceived, SKey: "s", MsgUID: "m"})
	require.NoError(t, e.Stop(t.Context()))
	require.EqualValues(t, 1, e.Dropped())
}

func TestEmitter_NeverBlocksWhoEmits(t *testing.T) {
	t.Parallel()
	rec := &recorder{gate: make(chan struct{})}
	e := hook.NewEmitter(rec, quiet())
	require.NoError(t, e.Start(t.Context()))
	for range 20_000 { // far more than the buffer holds, while nothing is published
		e.Emit(event.Lifecycle{Type: event.RunStarted, SKey: "s", RunID: "r"})
	}
	require.Positive(t, e.Dropped())
	close(rec.gate)
	require.NoError(t, e.Stop(t.Context()))
	require.EqualValues(t, 20_000, int64(len(rec.msgs))+e.Dropped())
}
