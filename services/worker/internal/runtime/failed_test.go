package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
	"github.com/hermes-runtime/hermes/services/worker/internal/stream"
)

// stalled is a store that knows what a run has cost, once it answers.
type stalled struct {
	Store
	failures int
}

func (s *stalled) Session(context.Context, string) (store.Session, error) {
	if s.failures--; s.failures >= 0 {
		return store.Session{}, fmt.Errorf("read session: %w", store.ErrUnavailable)
	}
	return store.Session{Attempt: 2, Stall: 1, StallKey: "k", RunClass: "pool"}, nil
}

// taker answers with a result and remembers what it was asked.
type taker struct {
	result takeover.Result
	run    store.ActiveRun
	reason string
	delay  time.Duration
}

func (x *taker) Take(_ context.Context, run store.ActiveRun, reason string, delay time.Duration) (takeover.Result, error) {
	x.run, x.reason, x.delay = run, reason, delay
	return x.result, nil
}

type deafBus struct{ bus.Notifier }

func (deafBus) Notify(context.Context, bus.Msg) error { return nil }

func panicked(t *testing.T, x *taker) *run {
	t.Helper()
	fence := store.Fence{SKey: "s", Gen: 5, RunID: uuid.New(), Owner: "worker-1/n"}
	h := control.NewHandle(t.Context(), fence)
	t.Cleanup(h.Close)
	logger := slog.New(slog.DiscardHandler)
	rt := &Runtime{Deps: Deps{Store: &stalled{failures: 2}, Takeover: x, Logger: logger}}
	r := rt.newRun(slot.Held{
		Claimed: store.Claimed{Fence: fence, Tenant: "t"}, Handle: h, Stream: stream.NewHub(deafBus{}, logger).Open("s", 5, "r"),
	})
	t.Cleanup(r.close)
	require.NoError(t, r.rescue(&panicError{value: "out of its mind"}))
	require.Equal(t, store.ActiveRun{
		SKey: "s", Tenant: "t", RunClass: "pool", Gen: 5, RunID: fence.RunID, Owner: "worker-1/n", Attempt: 2, Stall: 1, StallKey: "k",
	}, x.run)
	require.Equal(t, "panic: out of its mind", x.reason)
	require.Equal(t, time.Second, x.delay)
	return r
}

func TestRescue_APanicIsLeftToTheNextAttempt(t *testing.T) {
	t.Parallel()
	r := panicked(t, &taker{result: takeover.Result{Outcome: takeover.Queued, Gen: 6, RunID: uuid.New()}})
	require.Equal(t, slot.Ended{}, r.next, "nobody goes on at once")
	require.True(t, r.passedOn)
}

func TestRescue_ARunThatIsGivenUpMakesWayForTheNextOne(t *testing.T) {
	t.Parallel()
	next := uuid.New()
	r := panicked(t, &taker{result: takeover.Result{Outcome: takeover.Dead, Gen: 6, RunID: next}})
	require.Equal(t, slot.Ended{NextRun: next, NextGen: 6}, r.next)
	require.Equal(t, store.RunDead, r.state)
}

func TestRescue_ARunThatHasMovedOnIsLost(t *testing.T) {
	t.Parallel()
	fence := store.Fence{SKey: "s", Gen: 5}
	h := control.NewHandle(t.Context(), fence)
	t.Cleanup(h.Close)
	rt := &Runtime{Deps: Deps{Store: &stalled{}, Takeover: &taker{}, Logger: slog.New(slog.DiscardHandler)}}
	r := rt.newRun(slot.Held{Claimed: store.Claimed{Fence: fence}, Handle: h})
	t.Cleanup(r.close)
	require.ErrorIs(t, r.rescue(&panicError{}), agent.ErrFenced)
	require.ErrorIs(t, h.Write(func(store.Fence) error { return errors.New("called") }), agent.ErrFenced)
}
