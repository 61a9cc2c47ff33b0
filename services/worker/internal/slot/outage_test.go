package slot

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
)

const patience = 30 * time.Second

// working is a runner whose runs are told when to answer.
type working struct {
	begun chan Held
	end   chan struct{}
	errs  chan error
}

func newWorking() *working {
	return &working{begun: make(chan Held, 4), end: make(chan struct{}), errs: make(chan error, 4)}
}

func (w *working) run(b *bench) answering {
	return func(held Held) Ended {
		w.begun <- held
		<-w.end
		w.errs <- b.finish(held)
		return Ended{}
	}
}

// workingBubble is a worker on virtual time with a run in hand, which begins while Redis is down if it is.
func workingBubble(t *testing.T, redisDown bool) (*bench, *working, store.Admitted, Held) {
	t.Helper()
	w := newWorking()
	b := bubble(t, Config{}, nil)
	b.run = w.run(b)
	b.leases.setDown(redisDown)
	run := b.send(t, "a")
	return b, w, run, <-w.begun
}

func TestOutage_ARunGoesOnWithoutRedisByTheWordOfTheStore(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]bool{"from its beginning": true, "after a while": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, w, run, held := workingBubble(t, down)
				require.Equal(t, !down, len(b.leases.all()) == 1)
				b.leases.setDown(true)
				for range 120 {
					<-time.After(time.Second)
					require.NoError(t, held.Handle.Check())
				}
				require.Equal(t, run.Gen, held.Handle.Fence().Gen)
				close(w.end)
				require.NoError(t, <-w.errs)
				b.requireAnswered(t, "a", run.RunID, run.Gen+1)
			})
		})
	}
}

func TestOutage_ARunThatBeganWithoutALeaseIsReclaimedWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w, run, held := workingBubble(t, true)
		<-time.After(time.Minute)
		b.leases.setDown(false)
		<-time.After(lease.Renewal + time.Second)
		synctest.Wait()
		require.Equal(t, run.Gen+1, held.Handle.Fence().Gen)
		require.Equal(t, map[string]lease.Lease{"a": leaseOf(held.Handle.Fence())}, b.leases.all())
		close(w.end)
		require.NoError(t, <-w.errs)
		b.requireAnswered(t, "a", run.RunID, run.Gen+2)
	})
}

func TestOutage_OfBothStopsToolsAfterHalfAMinuteAndTheRunEndsWhenTheyAreBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w, run, held := workingBubble(t, false)
		b.leases.setDown(true)
		b.mem.down.Store(true)
		<-time.After(25 * time.Second)
		require.NoError(t, held.Handle.Check())
		<-time.After(15 * time.Second)
		require.ErrorIs(t, held.Handle.Check(), agent.ErrFenced)
		require.NoError(t, held.Handle.Work().Err(), "what the model says is still received")
		b.mem.down.Store(false)
		require.NoError(t, held.Handle.Await(t.Context()))
		require.NoError(t, held.Handle.Check())
		close(w.end)
		require.NoError(t, <-w.errs)
		b.requireAnswered(t, "a", run.RunID, run.Gen+1)
	})
}

func TestOutage_ARunThatWasTakenOverWhileBothWereGoneIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w, run, held := workingBubble(t, false)
		b.leases.setDown(true)
		b.mem.down.Store(true)
		<-time.After(20 * time.Second)
		results, err := b.mem.Handover(t.Context(), []store.Checkpoint{{Fence: held.Fence, RunGen: held.FirstGen}})
		require.NoError(t, err)
		require.NoError(t, results[0].Err)
		b.mem.down.Store(false)
		<-held.Handle.Hold().Done()
		require.Equal(t, agent.ErrFenced, context.Cause(held.Handle.Hold()))
		close(w.end)
		require.ErrorIs(t, <-w.errs, agent.ErrFenced)
		synctest.Wait()
		require.Equal(t, store.Queued, b.session(t, "a").State, "no clean-up write")
		require.Equal(t, run.Gen+1, b.session(t, "a").Gen)
	})
}

// onRealRedis is a worker with a run in hand whose lease is in a server of its own.
func onRealRedis(t *testing.T) (*bench, *redisserver.Server, *working, store.Admitted, Held) {
	t.Helper()
	server := redisserver.New(t)
	leases, err := redislease.Open(t.Context(), redislease.Config{URL: server.URL()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, leases.Close()) })
	w := newWorking()
	b := newBench(t, Config{}, leases, boottime.Now)
	b.run = w.run(b)
	b.start(t)
	run := b.send(t, "a")
	return b, server, w, run, <-w.begun
}

func TestOutage_ForgottenLeasesAreReclaimedAndTheRunAnswersOnce(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(s *redisserver.Server) error{
		"flushed":         (*redisserver.Server).FlushAll,
		"restarted empty": (*redisserver.Server).RestartEmpty,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, server, w, run, held := onRealRedis(t)
			before := held.Handle.Fence()
			require.NoError(t, forget(server))
			await.True(t, patience, func() bool {
				found, err := b.Leases.Lookup(t.Context(), []string{"a"})
				return err == nil && found[0] != nil && *found[0] == leaseOf(held.Handle.Fence()) && found[0].Gen == before.Gen+1
			}, "no lease of the next generation")
			require.NotEqual(t, before.Owner, held.Handle.Fence().Owner)
			require.Equal(t, held.Handle.Fence().Owner, b.session(t, "a").Owner)
			close(w.end)
			require.NoError(t, <-w.errs)
			b.requireAnswered(t, "a", run.RunID, run.Gen+2)
			await.True(t, patience, func() bool {
				found, err := b.Leases.Lookup(t.Context(), []string{"a"})
				return err == nil && found[0] == nil
			}, "the session is not free")
		})
	}
}

func TestENG01_ASecondDoorbellOfALongRunIsDroppedAndTheRunEndsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w, run, held := workingBubble(t, false)
		<-time.After(40 * time.Second)
		b.ring(t.Context(), b.newStart("default", "a", run.Gen, run.RunID), "")
		<-time.After(55 * time.Second)
		require.NoError(t, held.Handle.Check(), "a run is kept by loops that do not depend on what it does")
		require.Equal(t, 1, b.room.used())
		require.Empty(t, b.bus.queue)
		close(w.end)
		require.NoError(t, <-w.errs)
		b.requireAnswered(t, "a", run.RunID, run.Gen+1)
		acked, naked := b.bus.settled()
		require.Equal(t, []int{2, 0}, []int{acked, naked})
		require.Empty(t, w.begun)
	})
}
