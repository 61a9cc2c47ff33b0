package app_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestENG09_ARunThatEndsInTimeIsAnsweredAndNothingMoreIsTaken(t *testing.T) {
	t.Parallel()
	started, held := make(chan struct{}), make(chan struct{})
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		close(started)
		<-held
		return echo(ctx, n, req, say)
	}})
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "one"), c.row("m2", "two"))[0]
	b.ring(t, c, a, 0)
	receive(t, started)
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stopped <- b.app.Stop(ctx)
	}()
	require.Eventually(t, func() bool { return b.mem.Beats()[0].Draining }, patience, time.Millisecond)
	require.Equal(t, 1, b.mem.Beats()[0].Used)
	select {
	case err := <-stopped:
		require.FailNow(t, "the worker did not wait for its run", "%v", err)
	default:
	}
	close(held)
	require.NoError(t, receive(t, stopped))
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, store.Queued, b.session(t, c).State, "the next run is passed on")

	late := b.send(t, newChat(webhook, "b"), "m1", "late")
	worker, err := b.bus.Work(t.Context(), bus.RunQueue(config.DefaultPool))
	require.NoError(t, err)
	works, err := worker.Fetch(t.Context(), 16, time.Second)
	require.NoError(t, err)
	var ids []string
	for _, w := range works {
		ids = append(ids, w.Msg().ID)
	}
	require.Equal(t, []string{b.session(t, c).RunID.String() + ":2:0", late.RunID.String() + ":1:0"}, ids)
}

func TestENG09_UnstartedMessagesAreGivenBackAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	down := &noClaims{Store: b.mem, asked: make(chan struct{}, 64)}
	b.backends.Store = down
	b.start(t)
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	receive(t, down.asked)
	b.stop(t, patience)
	worker, err := b.bus.Work(t.Context(), bus.RunQueue(config.DefaultPool))
	require.NoError(t, err)
	works, err := worker.Fetch(t.Context(), 1, time.Second) // well before the 10 s after which it would come again by itself
	require.NoError(t, err)
	require.Len(t, works, 1)
	require.Equal(t, a.RunID.String()+":1:0", works[0].Msg().ID)
	require.False(t, b.redis.Exists("l:{"+c.skey+"}"))
}

// noClaims is a store that does not answer claims.
type noClaims struct {
	store.Store
	asked chan struct{}
}

func (s *noClaims) Claim(context.Context, []store.ClaimRequest) ([]store.Claimed, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return nil, store.ErrUnavailable
}

func TestHeartbeat_TellsSlots(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	require.Eventually(t, func() bool { return len(b.mem.Beats()) == 1 }, patience, time.Millisecond)
	beat := b.mem.Beats()[0]
	require.Equal(t, "worker-1", beat.WorkerID)
	require.Equal(t, []int{16, 0}, []int{beat.Slots, beat.Used})
	require.NotZero(t, beat.Boot)
	require.False(t, beat.Draining)
	require.Equal(t, "worker-1", b.app.WorkerID())
}

func TestChecks_TheBrokerAndFreedomToTakeRunsAreRequired(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	optional := map[string]bool{}
	for _, c := range b.app.Checks() {
		require.NoError(t, c.Ready(t.Context()))
		optional[c.Name] = c.Optional
	}
	require.Equal(t, map[string]bool{"slots": false, "nats": false, "postgres": true, "redis": true}, optional)
}

func TestWorker_CanStopTwiceAndBeforeItsStart(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	require.NoError(t, b.new())
	require.NoError(t, b.app.Stop(t.Context()))
	require.NoError(t, b.app.Start(t.Context()))
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	b.ended(t, a.RunID)
	require.NoError(t, b.app.Stop(t.Context()))
	require.NoError(t, b.app.Stop(t.Context()))
}
