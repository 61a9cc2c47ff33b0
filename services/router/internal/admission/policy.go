package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Busy is what a profile does about messages that come while a conversation is busy.
type Busy struct {
	Policy event.Policy
	// Quiet and Max are the window of the policy collect.
	Quiet, Max time.Duration
	// Pending is how many messages of a conversation may wait; 0: as many as come.
	Pending int
}

// policyOf is the policy that counts: the message's own, which a door may have taken from its channel, or the profile's.
func (b Busy) policyOf(m *event.Message) event.Policy {
	return cmp.Or(m.BusyPolicy, b.Policy, event.PolicyQueue)
}

// policyOf is the policy of a message in which admission has put the one that counts.
func policyOf(m *event.Message) event.Policy { return cmp.Or(m.BusyPolicy, event.PolicyQueue) }

// messageTreatment is that of an ordinary message. crowded: so many messages may wait that they have to be counted.
func messageTreatment(m *event.Message, busy Busy, crowded bool) treatment {
	policy := busy.policyOf(m)
	items := m.Group != "" || len(m.ItemUIDs) > 0
	return treatment{
		reads: crowded || items || policy == event.PolicyCollect || policy == event.PolicySteer,
		apply: func(a *Admitter, ctx context.Context, c *candidate) error {
			if crowded {
				if full, err := a.full(ctx, c, busy.Pending); err != nil || full {
					return err
				}
			}
			if items {
				if err := a.dropKnownItems(ctx, c); err != nil || c.ignored != "" {
					return err
				}
			}
			c.row.EndsCollect = policy != event.PolicyCollect && c.mayEndWindow(busy)
			return a.follows(ctx, c, policy, busy)
		},
	}
}

// mayEndWindow reports whether messages of another policy than that of c may be collected in its session. Where all have
// the policy of the profile there are none, and the row stays in the set-based form.
func (c *candidate) mayEndWindow(busy Busy) bool {
	own := c.event.BusyPolicy != "" && c.event.BusyPolicy != busy.Policy
	return own || busy.Policy == event.PolicyCollect || c.known.newest.policy == event.PolicyCollect
}

// follows makes the row do what its policy says.
func (a *Admitter) follows(ctx context.Context, c *candidate, policy event.Policy, busy Busy) error {
	switch policy {
	case event.PolicyCollect:
		return a.collect(ctx, c, store.Collect{Quiet: busy.Quiet, Max: busy.Max})
	case event.PolicySteer:
		return a.steer(ctx, c)
	case event.PolicyInterrupt:
		c.row.Interrupt = true
	case event.PolicyReject:
		c.row.RejectIfBusy = true
		c.reply(busyText) // which the store writes only if it refuses the row
	case event.PolicyQueue, event.PolicyLatest: // what a run takes is decided when it begins
	}
	return nil
}

// steer brings the message into the run that is going on. Without one, or if that is stopped, it is an ordinary message,
// which can be edited until it is answered. What was read may be old by now: a steer that comes too late is a turn as well.
func (a *Admitter) steer(ctx context.Context, c *candidate) error {
	s, err := a.Store.Session(ctx, c.event.SKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read session: %w", err)
	case s.RunID == uuid.Nil || s.StopRun == s.RunID:
		return nil
	}
	c.row.Kind, c.row.Steer = store.KindSteer, true
	return nil
}

// full refuses the message if as many as may wait do. They are counted once for each turn of the session: while nothing is
// taken out of it, it stays full, and those who write on must not cost more and more.
func (a *Admitter) full(ctx context.Context, c *candidate, limit int) (bool, error) {
	s, err := a.Store.Session(ctx, c.event.SKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read session: %w", err)
	}
	if c.known.full != standingOf(s) {
		_, waiting, err := a.behind(ctx, s)
		if err != nil || waiting < limit {
			return false, err
		}
		c.known.full = standingOf(s)
	}
	c.row.Kind, c.row.WantsRun = store.KindRefused, false
	c.reply(fullText(limit))
	return true, nil
}

// collecting reports whether a session waits for more messages, without a run.
func collecting(s store.Session) bool {
	return s.State == store.Waiting && s.WaitKind == store.WaitCollect
}

// collect waits for more messages of the same sender. Another sender ends the wait of the one before.
func (a *Admitter) collect(ctx context.Context, c *candidate, window store.Collect) error {
	s, err := a.Store.Session(ctx, c.event.SKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read session: %w", err)
	}
	if err != nil || !collecting(s) {
		c.row.Collect = &window
		return nil
	}
	rows, err := a.Store.InboxAfter(ctx, s.SKey, s.DoneSeq)
	if err != nil {
		return fmt.Errorf("read what was collected: %w", err)
	}
	if slices.ContainsFunc(rows, c.isAnotherTurnThan) {
		c.row.EndsCollect = true
		return nil
	}
	c.row.Collect = &window
	return nil
}

// isAnotherTurnThan reports whether a row wants an answer that does not answer c as well.
func (c *candidate) isAnotherTurnThan(r store.InboxRow) bool {
	wants := (r.Kind == store.KindUser || r.Kind == store.KindSteer) && r.RunID == uuid.Nil
	return wants && (inbox.PolicyOf(r) != event.PolicyCollect || inbox.Sender(r) != c.event.Source.UserID)
}

// openQuestion returns the id of the call for whose answer the current run of a session waits, "" if it asks nothing.
func (a *Admitter) openQuestion(ctx context.Context, skey string) (callID string, err error) {
	s, err := a.Store.Session(ctx, skey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read session: %w", err)
	case s.RunID == uuid.Nil || s.StopRun == s.RunID: // a stopped run takes nothing more
		return "", nil
	}
	calls, err := a.Store.RunToolCalls(ctx, s.RunID)
	if err != nil {
		return "", fmt.Errorf("read open calls: %w", err)
	}
	for _, c := range calls {
		if c.State == store.ToolIntent && c.Name == askUser {
			return c.CallID, nil
		}
	}
	return "", nil
}

// askUser is the tool whose calls wait for an answer of a person.
const askUser = "ask_user"

// answerQuestion brings an answer to the run that waits for it, or says that nobody does.
func (a *Admitter) answerQuestion(ctx context.Context, c *candidate) error {
	open, err := a.openQuestion(ctx, c.event.SKey)
	if err != nil {
		return err
	}
	c.row.Kind = store.KindApproval
	if open == "" || c.event.CallID != "" && c.event.CallID != open {
		c.reply(closedQuestionText)
		return nil
	}
	c.row.Wakes = true
	if c.event.Kind == event.KindCommand { // it says nothing of which question it answers
		answer := *c.event
		answer.CallID = open
		return c.rewrite(&answer)
	}
	return nil
}
