package sweep

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestSweep_TakesOverAtOnceWhenTheWorkerHasBegunAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		old, res := b.admit(t, "a", nil)
		b.beatAs(t, uuid.UUID{1})
		b.claim(t, old, res)
		b.after(t, time.Second)
		require.Empty(t, h.taken)

		b.beatAs(t, uuid.UUID{2})
		young, res := b.admit(t, "b", nil)
		b.claim(t, young, res)
		b.leases.held[old] = &lease.Lease{Gen: 1, Holder: "w/1"}
		b.after(t, time.Second)
		require.Empty(t, h.taken, "the lease has not ended yet")
		delete(b.leases.held, old)
		b.after(t, time.Second)
		require.Len(t, h.taken, 1)
		require.Equal(t, old, h.taken[0].SKey, "the new process holds the other one")
	})
}

func TestSweep_ForgetsHowLongALeaseWasGoneWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		skey, res := b.admit(t, "a", nil)
		b.claim(t, skey, res)
		pass := func(sweeps int) {
			for range sweeps {
				b.beat(t)
				b.after(t, time.Second)
			}
		}
		pass(5)
		b.leases.err = lease.ErrUnavailable
		pass(40)
		b.leases.err = nil
		pass(30)
		require.Empty(t, h.taken, "the worker takes its lease again")
		pass(1)
		require.Len(t, h.taken, 1)
	})
}

func TestSweep_TrustsHeartbeatsWhileRedisHasJustLostItsData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		dead, res := b.admit(t, "a", nil)
		b.beat(t)
		b.claim(t, dead, res)
		b.leases.held[dead] = &lease.Lease{Gen: 1, Holder: "w/1"}
		b.after(t, 20*time.Second)
		require.Empty(t, h.taken, "a lease is proof enough")
		b.leases.boot = "two"
		b.after(t, time.Second)
		require.Len(t, h.taken, 1, "the lease may be of before")
	})
}

func TestSweep_LooksAtEveryRunningRunAndForgetsThoseThatEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.hands()
		const runs = pageSize + 10
		for i := range runs {
			skey, res := b.admit(t, fmt.Sprint("chat ", i), nil)
			b.claim(t, skey, res)
		}
		b.after(t, time.Second)
		require.Len(t, b.seen.runs, runs)
		b.after(t, 20*time.Second)
		require.Len(t, h.taken, runs)

		active, _, err := b.mem.RunningRuns(t.Context(), b.Owned(), "", runs)
		require.NoError(t, err)
		for _, r := range active[:runs-1] {
			_, err := b.mem.Takeover(t.Context(), store.Takeover{SKey: r.SKey, Gen: r.Gen, Owner: r.Owner})
			require.NoError(t, err)
		}
		b.after(t, time.Second)
		require.Len(t, b.seen.runs, 1)
		b.Owned = func() []int { return nil }
		b.after(t, time.Second)
		require.Empty(t, b.seen.runs, "they are somebody else's")
	})
}

func TestEach_GivesEveryItemItsTurnUntilNobodyAnswers(t *testing.T) {
	t.Parallel()
	var items [100]int
	rejected := 0
	require.ErrorIs(t, each(items[:1], func(int) error { rejected++; return store.ErrRejected }), store.ErrRejected)
	require.Equal(t, 1, rejected)
	require.NoError(t, each(nil, func(int) error { return store.ErrRejected }))

	calls := make(chan struct{}, len(items))
	require.ErrorIs(t, each(items[:], func(int) error { calls <- struct{}{}; return store.ErrRejected }), store.ErrRejected)
	require.Len(t, calls, len(items))

	calls = make(chan struct{}, len(items))
	require.ErrorIs(t, each(items[:], func(int) error { calls <- struct{}{}; return store.ErrUnavailable }), store.ErrUnavailable)
	require.LessOrEqual(t, len(calls), 2*atOnce)
}
