package cancel

import (
	"context"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// ended is a run whose end is committed.
type ended struct {
	Stop
	session store.Session
	prompt  []store.InboxRow
	replies []store.NewReply
	result  store.FinishResult
	// next is the traceparent of the next run.
	next string
}

// tell lets others know: those who deliver the confirmation, the workers if a message waits, and observers.
func (c *Canceller) tell(ctx context.Context, e ended) {
	c.Bells.Ring(ctx, e.nextRun(), e.confirmation())
	ev := e.lifecycle(event.RunFinished)
	c.Events.Emit(ev)
	if len(e.replies) == 0 || e.replies[0].Read { // nobody delivers anything
		ev.Type = event.ProcessingCompleted
		c.Events.Emit(ev)
	}
}

func (e ended) nextRun() []dispatch.Run {
	if !e.result.Known || e.result.RunID == uuid.Nil {
		return nil
	}
	return []dispatch.Run{{
		SKey: e.SKey, Tenant: e.session.Tenant, Class: e.session.RunClass, Gen: e.result.Gen, RunID: e.result.RunID, Traceparent: e.next,
	}}
}

func (e ended) confirmation() []dispatch.Delivery {
	if !e.result.Known || len(e.replies) == 0 || e.replies[0].Read {
		return nil
	}
	return []dispatch.Delivery{{SKey: e.SKey, Platform: e.replies[0].Platform, OutSeq: e.result.FirstOut, Traceparent: e.Traceparent}}
}

func (e ended) lifecycle(t event.Type) event.Lifecycle {
	return event.Lifecycle{
		Type: t, Tenant: e.session.Tenant, SKey: e.SKey, MsgUID: e.first(), RunID: e.RunID.String(), Gen: e.session.Gen,
		Profile: e.session.AgentID, Address: e.ReplyTo, Outcome: string(store.RunCancelled),
	}
}

// first is the uid of the message that the run was to answer.
func (e ended) first() string {
	if len(e.prompt) == 0 {
		return ""
	}
	return e.prompt[0].UID
}
