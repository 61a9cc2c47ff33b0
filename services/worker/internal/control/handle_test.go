package control

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

const (
	stop   = runv1.ControlKind_CONTROL_KIND_STOP
	fenced = runv1.ControlKind_CONTROL_KIND_FENCED
	steer  = runv1.ControlKind_CONTROL_KIND_STEER
)

const ownRun = "01928c9a-7e57-7000-8000-000000000001"

func newTestHandle(t *testing.T) *Handle {
	t.Helper()
	h := NewHandle(t.Context(), store.Fence{SKey: "s", Gen: 5, RunID: uuid.MustParse(ownRun), Owner: "worker-1/n"})
	t.Cleanup(h.Close)
	return h
}

func TestHandle_SignalsThatConcernTheRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal     *runv1.Control
		work, hold error
	}{
		"stop":                          {signal: &runv1.Control{Kind: stop, Gen: 5, RunId: ownRun}, work: agent.ErrStopped},
		"stop of unknown generation":    {signal: &runv1.Control{Kind: stop, RunId: ownRun}, work: agent.ErrStopped},
		"stop of a newer generation":    {signal: &runv1.Control{Kind: stop, Gen: 6, RunId: ownRun}, work: agent.ErrStopped},
		"late stop":                     {signal: &runv1.Control{Kind: stop, Gen: 4, RunId: ownRun}},
		"stop of another run":           {signal: &runv1.Control{Kind: stop, Gen: 5, RunId: uuid.NewString()}},
		"stop of nothing":               {signal: &runv1.Control{Kind: stop, Gen: 5}},
		"fence by a newer generation":   {signal: &runv1.Control{Kind: fenced, Gen: 6}, work: agent.ErrFenced, hold: agent.ErrFenced},
		"fence by the same generation":  {signal: &runv1.Control{Kind: fenced, Gen: 5}},
		"fence by an older generation":  {signal: &runv1.Control{Kind: fenced, Gen: 4}},
		"fence by no generation at all": {signal: &runv1.Control{Kind: fenced}},
		"steer":                         {signal: &runv1.Control{Kind: steer, Gen: 5, RunId: ownRun}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHandle(t)
			h.signal(c.signal)
			require.Equal(t, c.work, context.Cause(h.Work()))
			require.Equal(t, c.hold, context.Cause(h.Hold()))
		})
	}
}

func TestHandle_HandoverEndsTheWorkOnly(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	require.False(t, h.Leaving())
	h.Leave()
	require.True(t, h.Leaving())
	require.NoError(t, context.Cause(h.Work()), "it leaves at its next step boundary")
	h.HandOver()
	require.Equal(t, agent.ErrHandover, context.Cause(h.Work()))
	require.NoError(t, context.Cause(h.Hold()), "what it has done can still be written")
}

func TestHandle_TheFirstCauseCounts(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	h.Stop()
	h.HandOver()
	require.Equal(t, agent.ErrStopped, context.Cause(h.Work()))
	require.NoError(t, context.Cause(h.Hold()), "the end of the run can still be written")
	h.Abandon()
	require.Equal(t, ErrDraining, context.Cause(h.Hold()))
	h.Lose()
	require.Equal(t, ErrDraining, context.Cause(h.Hold()))
}
