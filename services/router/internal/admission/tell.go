package admission

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// tell emits what became of a message.
func (a *Admitter) tell(ctx context.Context, c *candidate, res store.Admitted) {
	switch {
	case res.Kind == store.KindRefused:
		ev := c.lifecycle(event.MessageIgnored)
		ev.Outcome = string(store.KindRefused)
		a.Events.Emit(ev)
	case res.Kind == store.KindApproval && c.row.Wakes:
		ev := c.ofRun(event.ApprovalResolved, res.RunID, res)
		ev.CallID = c.event.CallID
		a.Events.Emit(ev)
	case res.Created:
		a.began(ctx, c, res)
	case c.row.WantsRun:
		a.interrupted(c, res)
		a.absorbed(ctx, c, res)
	case c.row.Stop:
		a.interrupted(c, res)
	case c.row.Reset && c.row.Kind != store.KindStop: // a stop leaves the conversation as it is
		a.Events.Emit(c.ofRun(event.SessionReset, res.Fenced, res))
	}
	if res.Fenced != uuid.Nil { // its owner has nothing to say any more
		ev := c.ofRun(event.RunFinished, res.Fenced, res)
		ev.MsgUID, ev.Outcome = "", string(store.RunCancelled)
		a.Events.Emit(ev)
	}
	if res.OutSeq > 0 && c.row.Notice.Read { // else egress completes what it delivers
		ev := c.lifecycle(event.ProcessingCompleted)
		ev.OutSeq, ev.Outcome = res.OutSeq, "done"
		a.Events.Emit(ev)
	}
}

// began tells of a run that was made. If that is because a window has ended, it answers what was collected before, and the
// message itself waits unless it takes all.
func (a *Admitter) began(ctx context.Context, c *candidate, res store.Admitted) {
	ev := c.ofRun(event.ProcessingStarted, res.RunID, res)
	others := c.known.endsWindow(res) && !c.row.Interrupt
	if others {
		ev.MsgUID = ""
	}
	a.Events.Emit(ev)
	if others && c.row.WantsRun {
		a.absorbed(ctx, c, res)
	}
}

// interrupted tells that the current run is to end, when that is known first.
func (a *Admitter) interrupted(c *candidate, res store.Admitted) {
	if !c.stops(res) || c.known.interrupted == res.StopRun {
		return
	}
	c.known.interrupted = res.StopRun
	a.Events.Emit(c.ofRun(event.RunInterrupted, res.StopRun, res))
}

// absorbed tells of a message that waits, or joins others.
func (a *Admitter) absorbed(ctx context.Context, c *candidate, res store.Admitted) {
	kind := event.MessagePending
	if c.known.joins(c, res) {
		kind = event.MessageMerged
	}
	a.Events.Emit(c.lifecycle(kind))
	a.Logger.InfoContext(ctx, "message waits", "skey", c.row.SKey, "msg_uid", c.row.UID, "policy", policyOf(c.event),
		"state", res.State, "run_id", res.RunID, "run_age", a.age(res.RunID), "uncovered", res.Seq-res.DoneSeq)
}

// age of a run, which its id tells; 0 without one.
func (a *Admitter) age(run uuid.UUID) time.Duration {
	if run.Version() != 7 {
		return 0
	}
	return a.now().Sub(time.Unix(run.Time().UnixTime())).Round(time.Millisecond)
}

func (c *candidate) lifecycle(t event.Type) event.Lifecycle {
	m := c.event
	return event.Lifecycle{Type: t, Tenant: m.Tenant, SKey: m.SKey, MsgUID: m.UID, Profile: m.Profile, Address: m.ReplyTo}
}

// ofRun is an event that concerns a run, if there is one.
func (c *candidate) ofRun(t event.Type, run uuid.UUID, res store.Admitted) event.Lifecycle {
	ev := c.lifecycle(t)
	if run != uuid.Nil {
		ev.RunID, ev.Gen = run.String(), res.Gen
	}
	return ev
}
