package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// known is what the run knows of the inbox: the rows behind the last finished run, and what it does with them.
type known struct {
	rows []store.InboxRow
	// ctlSeq is the newest stop or steer that there is, ctlSeen the one up to which the rows were read.
	ctlSeq, ctlSeen int64
	// out are rows that this run takes out of their place, once they are stored.
	out map[int64]*event.Message
	// asked are the calls whose questions were put by an earlier attempt.
	asked map[string]bool
}

// seen is the newest row that was read.
func (k *known) seen(doneSeq int64) int64 {
	if len(k.rows) == 0 {
		return doneSeq
	}
	return k.rows[len(k.rows)-1].Seq
}

// lookAgain reads the rows that came since. What was read before stays as it was.
func (r *run) lookAgain(ctx context.Context) error {
	r.ctlSeq = max(r.ctlSeq, r.Handle.Added())
	if r.ctlSeq <= r.ctlSeen {
		return nil
	}
	ctlSeq := r.ctlSeq
	if err := r.readOn(ctx); err != nil {
		return err
	}
	r.ctlSeen = ctlSeq
	return nil
}

func (r *run) readOn(ctx context.Context) error {
	rows, err := read(ctx, func(ctx context.Context) ([]store.InboxRow, error) {
		return r.Store.InboxAfter(ctx, r.SKey, r.seen(r.DoneSeq))
	})
	if err != nil {
		return fmt.Errorf("read messages that came since: %w", err)
	}
	r.rows = append(r.rows, rows...)
	return nil
}

// added returns the messages that were sent for this run while it works. The journal takes them out of the inbox in the
// statement that stores them, and they become part of the prompt. A stopped run takes nothing more.
func (r *run) added(ctx context.Context) ([]agent.Prompt, error) {
	if err := r.lookAgain(ctx); err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var prompts []agent.Prompt
	for _, row := range r.rows {
		if row.Kind != store.KindSteer || !r.free(row) {
			continue
		}
		m, err := r.message(ctx, row)
		if err != nil {
			r.Logger.WarnContext(ctx, "added message is not whole", "skey", r.SKey, "run_id", r.RunID, "msg_uid", m.UID, "err", err)
			m.Text = lostText
		}
		r.out[row.Seq] = m
		r.Prompt, r.messages = append(r.Prompt, row), append(r.messages, m)
		added := r.turnMessage(row.Seq, m)
		added.Added = true
		prompt, ok := added.Prompt()
		if !ok { // it says nothing, and the loop has a text for that
			prompt = agent.Prompt{InboxSeq: row.Seq}
			prompt.Message.Role = llm.User
		}
		prompts = append(prompts, prompt)
	}
	return prompts, nil
}

// free reports whether nobody has done anything about a row yet.
func (r *run) free(row store.InboxRow) bool {
	return row.RunID == uuid.Nil && r.out[row.Seq] == nil && !r.names(row.Seq)
}

// names reports whether a row is part of the prompt or of what it replaces.
func (r *run) names(seq int64) bool {
	for _, rows := range [][]store.InboxRow{r.Prompt, r.Superseded} {
		for _, row := range rows {
			if row.Seq == seq {
				return true
			}
		}
	}
	return false
}

// takenBy returns the rows that are taken out of their place by storing entries.
func (r *run) takenBy(entries []agent.Entry) []int64 {
	var taken []int64
	for _, e := range entries {
		if r.out[e.InboxSeq] != nil {
			taken = append(taken, e.InboxSeq)
		}
	}
	return taken
}

// took notes that rows are this run's now: its range ends behind those that stand right behind it. Messages among them
// are told of.
func (r *run) took(taken []int64) {
	if len(taken) == 0 {
		return
	}
	r.own(taken)
	var uids []string
	for _, row := range r.rows {
		if row.Kind == store.KindSteer && slices.Contains(taken, row.Seq) {
			uids = append(uids, row.UID)
			r.events.emit(event.Lifecycle{Type: event.MessageMerged, MsgUID: row.UID})
		}
	}
	if len(uids) > 0 {
		r.Stream.Merge(r.hold, uids)
	}
	again := inbox.Take(r.rows, r.DoneSeq, r.RunID, r.named())
	r.To, r.Waiting = again.To, again.Waiting
}

// own notes that rows carry this run.
func (r *run) own(taken []int64) {
	for i, row := range r.rows {
		if slices.Contains(taken, row.Seq) {
			r.rows[i].RunID = r.RunID
		}
	}
}

// named are messages that name the rows of the run, as a later attempt would find them.
func (r *run) named() []store.Message {
	var messages []store.Message
	for _, row := range r.Prompt {
		messages = append(messages, store.Message{Role: string(llm.User), InboxSeq: row.Seq})
	}
	for _, row := range r.Superseded {
		messages = append(messages, store.Message{Role: store.RoleSuperseded, InboxSeq: row.Seq})
	}
	return messages
}
