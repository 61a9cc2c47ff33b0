package admission

import (
	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// tell emits what became of a message.
func (a *Admitter) tell(c *candidate, res store.Admitted) {
	switch {
	case res.Created:
		a.Events.Emit(c.ofRun(event.ProcessingStarted, res.RunID, res))
	case c.row.WantsRun:
		a.Events.Emit(c.lifecycle(event.MessagePending))
	case c.row.Stop && res.StopRun != uuid.Nil:
		a.Events.Emit(c.ofRun(event.RunInterrupted, res.StopRun, res))
	case c.row.Reset:
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
