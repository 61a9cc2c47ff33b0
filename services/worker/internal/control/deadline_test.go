package control

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
)

// virtual is a clock of the bubble.
func virtual() boottime.Clock {
	start := time.Now().Add(-time.Hour)
	return func() time.Duration { return time.Since(start) }
}

// polled is a listener with one claimed run in hand, on virtual time.
type polled struct {
	*Listener
	store *stops
	run   *Handle
}

func newPolled(t *testing.T) polled {
	t.Helper()
	p := polled{store: &stops{states: map[store.Fence]store.StopState{}}}
	p.Listener = NewListenerWithClock(nil, p.store, slog.New(slog.DiscardHandler), virtual())
	f := store.Fence{SKey: "s", Gen: 5, RunID: uuid.MustParse(ownRun), Owner: "worker-1/n"}
	p.run = p.Open(t.Context(), f)
	t.Cleanup(p.run.Close)
	p.store.states[f] = store.StopState{Held: true}
	p.run.Claim()
	return p
}

// start begins to ask the store.
func (p polled) start(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestENG06_AZombieNoticesOnItsFirstCheckThatItsDeadlineIsPast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHandleWithClock(t.Context(), store.Fence{SKey: "s", Gen: 5}, virtual())
		t.Cleanup(h.Close)
		pass(12*time.Second - 1)
		require.NoError(t, h.Check())
		require.True(t, h.Valid())
		pass(1)
		require.ErrorIs(t, h.Check(), agent.ErrFenced)
		require.False(t, h.Valid())
		require.NoError(t, h.Hold().Err(), "the store decides whether the run is lost")
	})
}

func TestDeadline_CountsFromTheInstantOfTheNewestSign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := virtual()
		h := NewHandleWithClock(t.Context(), store.Fence{SKey: "s", Gen: 5}, clock)
		t.Cleanup(h.Close)
		at := clock()
		pass(4 * time.Second)
		h.Confirm(clock())
		h.Confirm(at) // an older answer that came late
		pass(12*time.Second - 1)
		require.True(t, h.Valid())
		pass(1)
		require.False(t, h.Valid())
	})
}

func TestDeadline_TheStoreKeepsARunGoing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t)
		p.start(t)
		for range 60 {
			pass(time.Second)
			require.NoError(t, p.run.Check())
		}
	})
}

func TestENG06_ARunThatWasTakenOverIsLostAndOneThatWasNotGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held bool
		want error
	}{"taken over": {false, agent.ErrFenced}, "still ours": {true, nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPolled(t)
				p.store.states[p.run.Fence()] = store.StopState{Held: c.held}
				pass(20 * time.Second) // frozen: nobody has asked
				require.ErrorIs(t, p.run.Check(), agent.ErrFenced)
				p.start(t)
				require.ErrorIs(t, p.run.Await(t.Context()), c.want)
				require.Equal(t, c.want, context.Cause(p.run.Hold()))
				called := false
				require.ErrorIs(t, p.run.Write(func(store.Fence) error { called = true; return nil }), c.want)
				require.Equal(t, c.held, called)
			})
		})
	}
}

func TestDeadline_InAnOutageWritesAreTriedAndNothingBeginsAfterHalfAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t)
		p.store.fail(true)
		p.start(t)
		pass(30*time.Second - 1)
		require.NoError(t, p.run.Check(), "neither Redis nor the store answers, so nobody takes over")
		pass(1)
		require.ErrorIs(t, p.run.Check(), agent.ErrFenced)
		require.NoError(t, p.run.Work().Err(), "what a model says is still received")
		pass(10 * time.Minute)
		called := false
		require.NoError(t, p.run.Write(func(store.Fence) error { called = true; return nil }))
		require.True(t, called)

		ready := make(chan error, 1)
		go func() { ready <- p.run.Await(t.Context()) }()
		synctest.Wait()
		require.Empty(t, ready)
		p.store.fail(false)
		require.NoError(t, <-ready, "it goes on when the store is back")
		require.NoError(t, p.run.Check())
	})
}

func TestDeadline_AnOutageBeforeAFreezeDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t)
		p.store.fail(true)
		require.Error(t, p.ask(t.Context()))
		pass(13 * time.Second) // frozen within an outage: nobody has asked again
		require.ErrorIs(t, p.run.Check(), agent.ErrFenced)
		require.Error(t, p.ask(t.Context()))
		require.NoError(t, p.run.Check(), "the outage goes on")
	})
}

func TestDeadline_NothingConfirmsAnOverdueRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(t)
		p.run.Limit(time.Minute)
		p.start(t)
		pass(time.Minute - 1)
		require.False(t, p.run.Overdue())
		require.NoError(t, p.run.Check())
		pass(1)
		require.True(t, p.run.Overdue())
		pass(14 * time.Second)
		require.Equal(t, agent.ErrFenced, context.Cause(p.run.Hold()))
	})
}

func TestAwait_EndsWithItsContextOrWithTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHandleWithClock(t.Context(), store.Fence{SKey: "s"}, virtual())
		t.Cleanup(h.Close)
		pass(time.Minute)
		ctx, cancel := context.WithCancelCause(t.Context())
		ready := make(chan error, 2)
		go func() { ready <- h.Await(ctx) }()
		synctest.Wait()
		cancel(agent.ErrStopped)
		require.Equal(t, agent.ErrStopped, <-ready)
		go func() { ready <- h.Await(t.Context()) }()
		synctest.Wait()
		h.Abandon()
		err := <-ready
		require.ErrorIs(t, err, agent.ErrFenced)
		require.ErrorIs(t, err, ErrDraining)
	})
}
