package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/turn"
)

// decode reads the messages of the prompt. One that cannot be read stands for itself as an empty message, which the
// pipeline rejects.
func (r *run) decode() {
	r.messages = make([]*event.Message, len(r.Prompt))
	for i, row := range r.Prompt {
		r.messages[i] = &event.Message{}
		if err := json.Unmarshal(row.Body, r.messages[i]); err != nil {
			r.Logger.ErrorContext(r.hold, "message unreadable", "skey", r.SKey, "run_id", r.RunID, "seq", row.Seq, "err", err)
		}
	}
}

// newest is the last message of the prompt: its address gets the reply, its sender owns what the tools do.
func (r *run) newest() *event.Message {
	if len(r.messages) == 0 {
		return nil
	}
	return r.messages[len(r.messages)-1]
}

func (r *run) address() event.Address {
	if m := r.newest(); m != nil {
		return m.ReplyTo
	}
	return event.Address{}
}

func (r *run) uids() []string {
	uids := make([]string, len(r.messages))
	for i, m := range r.messages {
		uids[i] = m.UID
	}
	return uids
}

// shared reports whether several people write in this conversation.
func (r *run) shared(m *event.Message) bool {
	return r.profile != nil && session.SharedMultiUser(m.Source, r.profile.cfg.KeyOptions(r.profile.name))
}

func (r *run) input() turn.Input {
	in := turn.Input{RunID: r.RunID.String(), SKey: r.SKey}
	for i, m := range r.messages {
		message := turn.Message{InboxSeq: r.Prompt[i].Seq, Text: m.Text, Attachments: m.Attachments, Quote: m.Quote}
		if r.shared(m) {
			message.Name = speaker(m.Source)
		}
		in.Messages = append(in.Messages, message)
	}
	return in
}

func speaker(s session.Source) string {
	if strings.TrimSpace(s.UserName) != "" {
		return s.UserName
	}
	return s.Participant()
}

// agentRun is what the loop gets to know.
func (r *run) agentRun(t *turn.Turn, before conversation) (agent.Run, error) {
	stored, err := entriesOf(r.stored)
	if err != nil {
		return agent.Run{}, err
	}
	calls, err := callsOf(r.ToolCalls)
	if err != nil {
		return agent.Run{}, err
	}
	m := r.newest()
	return agent.Run{
		ID: r.RunID.String(), Session: r.SKey, Tenant: r.Tenant, User: m.Source.Participant(),
		Notes: notes(noteFacts{
			now: r.Now(), place: m.Source.Platform, shared: r.shared(m), tools: r.profile.hasTools(),
			instructions: before.instructions,
		}),
		History: before.messages, HistoryComplete: before.complete,
		Prompt: t.Prompt, Stored: stored, Calls: calls, Leave: r.Handle.Leaving,
	}, nil
}

// conversation is what was said before the messages of the run.
type conversation struct {
	messages []llm.Message
	// complete and instructions are those of a client that keeps the conversation itself.
	complete     bool
	instructions string
}

// conversation is the one that the client sent along, if it keeps it itself; what the server has stored is not read then.
func (r *run) conversation(ctx context.Context) (conversation, error) {
	if m := r.newest(); m != nil && len(m.History) > 0 {
		return clientConversation(m.History), nil
	}
	messages, err := r.history(ctx)
	return conversation{messages: messages}, err
}

func clientConversation(turns []event.Turn) conversation {
	c := conversation{complete: true}
	var instructions []string
	for _, t := range turns {
		switch t.Role {
		case "system":
			instructions = append(instructions, t.Text)
		case string(llm.Assistant):
			c.messages = append(c.messages, llm.Message{Role: llm.Assistant, Text: t.Text})
		default:
			c.messages = append(c.messages, llm.Message{Role: llm.User, Text: t.Text})
		}
	}
	c.instructions = strings.Join(instructions, "\n\n")
	return c
}

// history reads what earlier runs of the conversation said.
func (r *run) history(ctx context.Context) ([]llm.Message, error) {
	limit := r.profile.cfg.Limits.History + len(r.stored)
	rows, err := read(ctx, func(ctx context.Context) ([]store.Message, error) {
		return r.Store.History(ctx, r.SKey, r.SessionID, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	rows = slices.DeleteFunc(rows, func(m store.Message) bool { return m.RunID == r.RunID })
	messages, unreadable := messagesOf(rows)
	if unreadable > 0 {
		r.Logger.WarnContext(ctx, "history holds unreadable messages", "skey", r.SKey, "run_id", r.RunID, "count", unreadable)
	}
	return messages, nil
}

// promptEntries are the messages of the prompt as history stores them, but for those that are stored.
func (r *run) promptEntries(t *turn.Turn) []agent.Entry {
	n := 1
	for _, m := range r.stored {
		n = max(n, m.N+1)
	}
	known := inbox.NamedRows(r.stored)
	var entries []agent.Entry
	for _, p := range t.Prompt {
		if known[p.InboxSeq] {
			continue
		}
		entries = append(entries, agent.Entry{N: n, Message: p.Message, InboxSeq: p.InboxSeq})
		n++
	}
	return entries
}
