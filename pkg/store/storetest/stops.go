package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func stopsCases() []testCase {
	return []testCase{
		{"stops of nothing are nothing", stopsNothing},
		{"stops tell which runs are stopped and which are lost, in order", stopsOfMany},
		{"stops see a run that was taken over as lost", stopsTakenOver},
		{"stops see an ended run as lost though the session has the same owner again", stopsEnded},
	}
}

func (e *env) stops(t tb, fences ...store.Fence) []store.StopState {
	t.Helper()
	got, err := e.Store.Stops(t.Context(), fences)
	require.NoError(t, err)
	require.Len(t, got, len(fences))
	return got
}

func stopsNothing(t *testing.T, e *env) {
	require.Empty(t, e.stops(t))
}

func stopsOfMany(t *testing.T, e *env) {
	const count = 20
	var fences []store.Fence
	var want []store.StopState
	for i := range count {
		c := newChat(fmt.Sprint(i))
		run := e.start(t, c, "m1")
		state := store.StopState{Held: true}
		if i%3 == 0 {
			e.admit(t, c.stop("s1"))
			state.StopRun = run.RunID
		}
		fences, want = append(fences, run.Fence), append(want, state)
	}
	require.Equal(t, want, e.stops(t, fences...))

	first := fences[0]
	for name, change := range map[string]func(*store.Fence){
		"session": func(f *store.Fence) { f.SKey = newChat("none").skey }, "generation": func(f *store.Fence) { f.Gen++ },
		"run": func(f *store.Fence) { f.RunID = newID() }, "owner": func(f *store.Fence) { f.Owner = "worker-2/b" },
	} {
		other := first
		change(&other)
		require.Equal(t, []store.StopState{{}, want[0]}, e.stops(t, other, first), name)
	}
}

func stopsTakenOver(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.takeOver(t, c)
	require.Equal(t, []store.StopState{{}}, e.stops(t, run.Fence), "queued")
	again := e.claim(t, c, worker)
	require.Equal(t, []store.StopState{{}, {Held: true}}, e.stops(t, run.Fence, again.Fence), "claimed again")
}

func stopsEnded(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.user("m2"), c.stop("s1"))
	e.finish(t, cancelled(run, 1))
	require.Equal(t, []store.StopState{{}}, e.stops(t, run.Fence))
	next := e.claim(t, c, worker)
	require.Equal(t, []store.StopState{{}, {Held: true}}, e.stops(t, run.Fence, next.Fence), "the stop ended with its run")
}
