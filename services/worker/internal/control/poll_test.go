package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// stops answers for each fence; it may fail.
type stops struct {
	mu     sync.Mutex
	states map[store.Fence]store.StopState
	fails  bool
	asked  [][]store.Fence
}

func (s *stops) questions() [][]store.Fence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *stops) fail(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

func (s *stops) Stops(_ context.Context, fences []store.Fence) ([]store.StopState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fences)
	if s.fails {
		return nil, errors.New("down")
	}
	states := make([]store.StopState, len(fences))
	for i, f := range fences {
		states[i] = s.states[f]
	}
	return states, nil
}

func TestPoll_FindsStopsAndLostRunsWhoseSignalNeverCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stops{states: map[store.Fence]store.StopState{}}
		l := NewListener(nil, s, slog.New(slog.DiscardHandler))
		require.NoError(t, l.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, l.Stop(context.WithoutCancel(t.Context()))) })
		other := uuid.New()
		handles := map[string]*Handle{}
		for name, state := range map[string]store.StopState{
			"runs": {Held: true}, "stopped": {Held: true}, "stop of another": {Held: true, StopRun: other}, "lost": {},
		} {
			f := store.Fence{SKey: name, Gen: 1, RunID: uuid.New(), Owner: "worker-1/" + name}
			if name == "stopped" {
				state.StopRun = f.RunID
			}
			s.states[f] = state
			h := NewHandle(t.Context(), f)
			t.Cleanup(h.Close)
			h.Claim()
			l.Add(h)
			handles[name] = h
		}
		unclaimed := NewHandle(t.Context(), store.Fence{SKey: "unclaimed"})
		t.Cleanup(unclaimed.Close)
		l.Add(unclaimed)

		<-time.After(2*time.Second + time.Millisecond) // virtual time
		synctest.Wait()
		require.Len(t, s.questions(), 1, "one question for all runs")
		require.Len(t, s.questions()[0], 4)
		for name, want := range map[string]error{"runs": nil, "stopped": agent.ErrStopped, "stop of another": nil, "lost": agent.ErrFenced} {
			require.Equal(t, want, context.Cause(handles[name].Work()), name)
		}
		require.NoError(t, context.Cause(handles["stopped"].Hold()), "its end is still written")
		require.Equal(t, agent.ErrFenced, context.Cause(handles["lost"].Hold()))
		require.NoError(t, context.Cause(unclaimed.Hold()), "before the claim the store knows nothing of a run")
	})
}

func TestPoll_ADeadStoreSaysNothingAboutAnyRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stops{}
		s.fail(true)
		l := NewListener(nil, s, slog.New(slog.DiscardHandler))
		require.NoError(t, l.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, l.Stop(context.WithoutCancel(t.Context()))) })
		h := NewHandle(t.Context(), store.Fence{SKey: "s", Gen: 1})
		t.Cleanup(h.Close)
		h.Claim()
		l.Add(h)
		<-time.After(5 * time.Second)
		synctest.Wait()
		require.Len(t, s.questions(), 2)
		require.NoError(t, context.Cause(h.Work()))
		s.fail(false)
		<-time.After(2*time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, agent.ErrFenced, context.Cause(h.Work()), "and it is asked again")
	})
}

func TestPoll_AsksNothingWithoutRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stops{}
		l := NewListener(nil, s, slog.New(slog.DiscardHandler))
		require.NoError(t, l.Start(t.Context()))
		<-time.After(time.Minute)
		require.Empty(t, s.questions())
		require.NoError(t, l.Stop(t.Context()))
	})
}
