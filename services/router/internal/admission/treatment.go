package admission

import (
	"context"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/notice"
)

// treatment is what admission does about a message of one sort before it stores it.
type treatment struct {
	// reads: it depends on what the store holds of the session, so the messages before it have to be stored first.
	reads bool
	// apply completes the candidate. It is called again if the store or the bus did not answer.
	apply func(a *Admitter, ctx context.Context, c *candidate) error
}

// treatmentOf chooses it. crowded: so many messages of the session may wait that they have to be counted.
func treatmentOf(m *event.Message, busy Busy, crowded bool) treatment {
	switch {
	case m.Refusal != "":
		return treatment{apply: (*Admitter).refuse}
	case m.Kind == event.KindCommand:
		return commandTreatment(m.Command.Name, busy.policyOf(m) == event.PolicyCollect)
	case m.Kind == event.KindEdit:
		return treatment{reads: true, apply: (*Admitter).edit}
	case m.Kind == event.KindAction:
		return treatment{reads: true, apply: (*Admitter).answerQuestion}
	case m.Kind == event.KindMessage:
		return messageTreatment(m, busy, crowded)
	default:
		return treatment{apply: (*Admitter).asItIs}
	}
}

// prepare completes the candidates of a batch. It may be repeated: what is complete is left alone.
func (a *Admitter) prepare(ctx context.Context, batch []*candidate) error {
	if err := a.forward(ctx, batch); err != nil {
		return err
	}
	for _, c := range batch {
		if c.dead != nil || c.ready {
			continue
		}
		if err := c.treatment.apply(a, ctx, c); err != nil {
			return err
		}
		c.withoutAnswer()
		c.ready = true
	}
	return nil
}

func (a *Admitter) asItIs(context.Context, *candidate) error { return nil }

// refuse answers in place of the agent, which never learns of the message.
func (a *Admitter) refuse(_ context.Context, c *candidate) error {
	if c.event.Kind == event.KindEdit { // the refusal of the message itself has been told
		c.ignored = ignoredRefused
		return nil
	}
	c.row.Kind, c.row.WantsRun, c.row.EndsCollect = store.KindRefused, false, false
	c.reply(refusalText(c.event.Refusal, c.event.Source.UserID))
	return nil
}

// reply answers the message by a notice that is stored with it.
func (c *candidate) reply(text string) {
	r := notice.To(c.event.ReplyTo, text)
	r.DKey = c.event.UID + ":" + string(c.row.Kind)
	c.row.Notice = &r
}
