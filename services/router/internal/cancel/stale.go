package cancel

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// EndStale ends a stopped run that nobody has ended, whoever owns it: its worker may be gone, or the router that wanted
// to end it.
func (c *Canceller) EndStale(ctx context.Context, s store.StaleStop) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	session, err := c.Store.Session(ctx, s.SKey)
	switch {
	case err != nil:
		return fmt.Errorf("read session: %w", err)
	case session.RunID != s.RunID || session.StopRun != s.RunID || session.Gen != s.Gen:
		return nil // ended meanwhile
	}
	return c.end(ctx, Stop{SKey: s.SKey, RunID: s.RunID, Gen: s.Gen}, session, c.Store.EndStopped)
}

// recall reads from the inbox who has stopped the run. What interrupts is no stop, and answers where the run would have.
func recall(s Stop, rows, prompt []store.InboxRow) Stop {
	for _, row := range rows {
		if row.Kind != store.KindStop {
			continue
		}
		if to := replyTo(row); to.Platform != "" {
			s.ReplyTo, s.Traceparent = to, row.Traceparent
			return s
		}
	}
	for _, row := range slices.Backward(prompt) {
		if to := replyTo(row); to.Platform != "" {
			s.ReplyTo = to
			return s
		}
	}
	return s // nobody can be told
}

// replyTo is empty where the body cannot be read.
func replyTo(row store.InboxRow) event.Address {
	var m event.Message
	if json.Unmarshal(row.Body, &m) != nil {
		return event.Address{}
	}
	return m.ReplyTo
}

// form is the cancelled form of a run.
func form(s Stop, session store.Session, taken inbox.Taking, to int64, replies []store.NewReply) store.QueuedStop {
	return store.QueuedStop{
		SKey: s.SKey, Gen: session.Gen, RunID: s.RunID, From: taken.From, To: to, Replies: replies,
		NextRunID: uuid.Must(uuid.NewV7()), NextTraceparent: traceparentBehind(taken.Waiting, to),
	}
}
