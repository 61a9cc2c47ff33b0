package control

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

const (
	stop   = runv1.ControlKind_CONTROL_KIND_STOP
	fenced = runv1.ControlKind_CONTROL_KIND_FENCED
	steer  = runv1.ControlKind_CONTROL_KIND_STEER
)

func newTestHandle(t *testing.T) *Handle {
	t.Helper()
	h := NewHandle(t.Context(), "s", 5, "r")
	t.Cleanup(h.Close)
	return h
}

func TestHandle_SignalsThatConcernTheRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal     *runv1.Control
		work, hold error
	}{
		"stop":                          {signal: &runv1.Control{Kind: stop, Gen: 5, RunId: "r"}, work: agent.ErrStopped},
		"stop of unknown generation":    {signal: &runv1.Control{Kind: stop, RunId: "r"}, work: agent.ErrStopped},
		"stop of a newer generation":    {signal: &runv1.Control{Kind: stop, Gen: 6, RunId: "r"}, work: agent.ErrStopped},
		"late stop":                     {signal: &runv1.Control{Kind: stop, Gen: 4, RunId: "r"}},
		"stop of another run":           {signal: &runv1.Control{Kind: stop, Gen: 5, RunId: "x"}},
		"stop of nothing":               {signal: &runv1.Control{Kind: stop, Gen: 5}},
		"fence by a newer generation":   {signal: &runv1.Control{Kind: fenced, Gen: 6}, work: agent.ErrFenced, hold: agent.ErrFenced},
		"fence by the same generation":  {signal: &runv1.Control{Kind: fenced, Gen: 5}},
		"fence by an older generation":  {signal: &runv1.Control{Kind: fenced, Gen: 4}},
		"fence by no generation at all": {signal: &runv1.Control{Kind: fenced}},
		"steer":                         {signal: &runv1.Control{Kind: steer, Gen: 5, RunId: "r"}},
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

func TestHandle_TheFirstCauseCounts(t *testing.T) {
	t.Parallel()
	h := newTestHandle(t)
	h.Stop()
	h.Drain()
	require.Equal(t, agent.ErrStopped, context.Cause(h.Work()))
	require.NoError(t, context.Cause(h.Hold()), "the end of the run can still be written")
	h.Abandon()
	require.Equal(t, ErrDraining, context.Cause(h.Hold()))
	h.Fence()
	require.Equal(t, ErrDraining, context.Cause(h.Hold()))
}
