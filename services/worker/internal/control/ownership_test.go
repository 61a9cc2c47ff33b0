package control

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// next is the fence of a run after a re-claim.
func next(f store.Fence) store.Fence {
	f.Gen, f.Owner = f.Gen+1, "worker-1/m"
	return f
}

func TestWrite_UsesTheFenceAsItIsAndPassesErrorsOn(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	h.Claim()
	before := h.Fence()
	boom := errors.New("boom")
	require.Equal(t, boom, h.Write(func(f store.Fence) error {
		require.Equal(t, before, f)
		return boom
	}))
	fence, ok := h.BeginReclaim()
	require.True(t, ok)
	require.Equal(t, before, fence)
	h.EndReclaim(next(fence))
	require.Equal(t, next(before), h.Fence())
	require.NoError(t, h.Write(func(f store.Fence) error {
		require.Equal(t, next(before), f)
		return nil
	}))
}

func TestWrite_OfALostRunIsRefused(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	h.Lose()
	require.Equal(t, agent.ErrFenced, h.Write(func(store.Fence) error { return errors.New("called") }))
}

func TestReclaim_IsRefusedWhileAWriteIsOnItsWay(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	_, ok := h.BeginReclaim()
	require.False(t, ok, "before the claim")
	h.Claim()
	require.NoError(t, h.Write(func(store.Fence) error {
		_, ok := h.BeginReclaim()
		require.False(t, ok)
		return nil
	}))
	fence, ok := h.BeginReclaim()
	require.True(t, ok)
	_, ok = h.BeginReclaim()
	require.False(t, ok, "one at a time")
	h.EndReclaim(fence)
	h.Lose()
	_, ok = h.BeginReclaim()
	require.False(t, ok, "once it is lost")
}

func TestReclaim_HoldsWritesOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandle(t)
		h.Claim()
		fence, ok := h.BeginReclaim()
		require.True(t, ok)
		written := make(chan store.Fence, 1)
		go func() {
			if err := h.Write(func(f store.Fence) error { written <- f; return nil }); err != nil {
				close(written)
			}
		}()
		synctest.Wait()
		require.Empty(t, written)
		h.EndReclaim(next(fence))
		require.Equal(t, next(fence), <-written)
	})
}

func TestReclaim_ARunThatIsLostMeanwhileWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandle(t)
		h.Claim()
		_, ok := h.BeginReclaim()
		require.True(t, ok)
		written := make(chan error, 1)
		go func() { written <- h.Write(func(store.Fence) error { return errors.New("called") }) }()
		synctest.Wait()
		h.Lose()
		require.Equal(t, agent.ErrFenced, <-written)
	})
}

func TestObserve_AnAnswerAboutAnOldFenceSaysNothing(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	h.Claim()
	asked, ok := h.BeginReclaim()
	require.True(t, ok)
	h.observe(asked, store.StopState{}, time.Hour)
	require.NoError(t, h.Hold().Err(), "the new fence may be committed")
	h.EndReclaim(next(asked))
	h.observe(asked, store.StopState{}, time.Hour)
	require.NoError(t, h.Hold().Err())
	require.NoError(t, h.Write(func(f store.Fence) error {
		h.observe(f, store.StopState{}, time.Hour)
		return h.Hold().Err()
	}), "the write may have ended the run")
	h.observe(h.Fence(), store.StopState{}, time.Hour)
	require.ErrorIs(t, h.Check(), agent.ErrFenced)
}

func TestSignal_OfTheGenerationBeforeAReclaimIsNotLate(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	h.Claim()
	fence, ok := h.BeginReclaim()
	require.True(t, ok)
	h.EndReclaim(next(fence))
	h.signal(&runv1.Control{Kind: fenced, Gen: 6})
	require.NoError(t, h.Hold().Err(), "that is its own generation")
	h.signal(&runv1.Control{Kind: stop, Gen: 5, RunId: ownRun})
	require.Error(t, h.Work().Err())
	h.signal(&runv1.Control{Kind: fenced, Gen: 7})
	require.Error(t, h.Hold().Err())
}
