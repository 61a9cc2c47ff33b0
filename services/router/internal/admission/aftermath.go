package admission

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/router/internal/cancel"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// aftermath is what a commit leaves to do. It may be lost: all of it can be found in the store again.
type aftermath struct {
	runs    []dispatch.Run
	notices []dispatch.Delivery
	signals []dispatch.Signal
	stops   []cancel.Stop
	letters []dispatch.Letter
	// over are runs that a later message of the batch ended, or is about to end.
	over              []uuid.UUID
	fresh, duplicates int64
}

// add notes what a stored message leaves to do.
func (f *aftermath) add(c *candidate, res store.Admitted) {
	f.fresh++
	if res.Created || c.row.Kind == store.KindApproval && c.row.Wakes && res.State == store.Queued {
		f.runs = append(f.runs, c.run(res))
	}
	if res.OutSeq > 0 && !c.row.Notice.Read {
		f.notices = append(f.notices, c.notice(res))
	}
	switch {
	case c.row.Stop, c.row.Interrupt:
		f.addStop(c, res)
	case c.row.Steer && res.State == store.Running:
		f.signals = append(f.signals, c.signal(runv1.ControlKind_CONTROL_KIND_STEER, res, res.RunID))
	case res.Fenced != uuid.Nil:
		f.over = append(f.over, res.Fenced)
		f.signals = append(f.signals, c.signal(runv1.ControlKind_CONTROL_KIND_FENCED, res, res.Fenced))
	}
}

// stops reports whether the message wants the current run to end, and it is stopped. The session keeps the run that was
// stopped before: an interruption, which leaves a run alone that has not begun, may find that.
func (c *candidate) stops(res store.Admitted) bool {
	return (c.row.Stop || c.row.Interrupt) && res.StopRun != uuid.Nil && res.StopRun == res.RunID
}

// addStop signals the worker that holds the stopped run, or has the run ended that nobody holds; asking for that twice is
// harmless. The run of a paused session is ended when an operator lets it go on.
func (f *aftermath) addStop(c *candidate, res store.Admitted) {
	if !c.stops(res) {
		return
	}
	switch res.State {
	case store.Running:
		f.signals = append(f.signals, c.signal(runv1.ControlKind_CONTROL_KIND_STOP, res, res.StopRun))
	case store.Queued: // and no longer waiting, or not yet running
		f.over = append(f.over, res.StopRun)
		f.stops = append(f.stops, cancel.Stop{
			SKey: c.row.SKey, RunID: res.StopRun, Seq: res.Seq, Gen: res.Gen, ReplyTo: c.event.ReplyTo, Traceparent: c.traceparent,
		})
	case store.Idle, store.Waiting, store.Paused:
	}
}

// follow does what a commit left to do, control first.
func (a *Admitter) follow(ctx context.Context, f *aftermath) {
	for _, s := range f.signals {
		a.Bells.Signal(ctx, s)
	}
	for _, s := range f.stops {
		a.Canceller.Cancel(ctx, s)
	}
	runs := slices.DeleteFunc(f.runs, func(r dispatch.Run) bool { return slices.Contains(f.over, r.RunID) })
	a.Bells.Ring(ctx, runs, f.notices)
	a.Bells.Bury(ctx, f.letters)
	a.metrics.admitted.Add(ctx, f.fresh)
	a.metrics.duplicates.Add(ctx, f.duplicates)
}

func (c *candidate) run(res store.Admitted) dispatch.Run {
	return dispatch.Run{SKey: c.row.SKey, Tenant: c.row.Tenant, Class: c.row.RunClass, Gen: res.Gen, RunID: res.RunID, Traceparent: c.traceparent}
}

func (c *candidate) notice(res store.Admitted) dispatch.Delivery {
	return dispatch.Delivery{SKey: c.row.SKey, Platform: c.row.Notice.Platform, OutSeq: res.OutSeq, Traceparent: c.traceparent}
}

func (c *candidate) signal(kind runv1.ControlKind, res store.Admitted, run uuid.UUID) dispatch.Signal {
	return dispatch.Signal{SKey: c.row.SKey, Kind: kind, Seq: res.Seq, Gen: res.Gen, RunID: run}
}
