package runtime

import (
	"encoding/json"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// replacement is what the run owes to the messages that a newer one has replaced: a place in the history and a notice for
// each.
type replacement struct {
	messages []store.Message
	replies  []store.NewReply
}

// owes reports whether there is something that is not stored yet.
func (r *run) owes() bool {
	return len(r.Superseded) > 0 && !inbox.NamedRows(r.stored)[r.Superseded[0].Seq]
}

// replacement numbers the messages from n on. It is empty once it is stored.
func (r *run) replacement(n int) (replacement, error) {
	var owed replacement
	if !r.owes() {
		return owed, nil
	}
	for i, row := range r.Superseded {
		m := r.replaced[i]
		prompt, _ := r.turnMessage(row.Seq, m).Prompt() // one that says nothing is in the history all the same
		content, err := json.Marshal(llm.Message{Role: store.RoleSuperseded, Name: prompt.Message.Name, Text: prompt.Message.Text})
		if err != nil {
			return replacement{}, fmt.Errorf("encode superseded message %d: %w", row.Seq, err)
		}
		owed.messages = append(owed.messages, store.Message{
			RunGen: r.FirstGen, N: n + i, RunID: r.RunID, Role: store.RoleSuperseded, Content: content, InboxSeq: row.Seq,
		})
		replies, err := replyTo(m.ReplyTo, m.UID+":superseded", channel.Part{Markdown: supersededText, Notice: true})
		if err != nil {
			return replacement{}, err
		}
		owed.replies = append(owed.replies, replies...)
	}
	return owed, nil
}

// replyTo addresses a reply of one part. There is none where nobody knows where to reply.
func replyTo(address event.Address, dkey string, part channel.Part) ([]store.NewReply, error) {
	if address.Platform == "" {
		return nil, nil
	}
	target, err := json.Marshal(address)
	if err != nil {
		return nil, fmt.Errorf("encode reply address: %w", err)
	}
	return []store.NewReply{{
		DKey: dkey, Platform: address.Platform, Target: target, Parts: channel.EncodeParts(part), Read: address.Read(),
	}}, nil
}

// nextN is the first number that none of the messages has.
func nextN(messages ...[]store.Message) int {
	n := 1
	for _, some := range messages {
		for _, m := range some {
			n = max(n, m.N+1)
		}
	}
	return n
}
