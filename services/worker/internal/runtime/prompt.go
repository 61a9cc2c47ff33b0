package runtime

import (
	"context"
	"fmt"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/turn"
)

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
		Check: r.Handle.Await, Added: r.added, Answer: r.answerTo,
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
	rows, err := r.history(ctx)
	if err != nil {
		return conversation{}, fmt.Errorf("read history: %w", err)
	}
	messages, unreadable := messagesOf(rows)
	if unreadable > 0 {
		r.Logger.WarnContext(ctx, "history holds unreadable messages", "skey", r.SKey, "run_id", r.RunID, "count", unreadable)
	}
	return conversation{messages: messages}, nil
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

// promptEntries are the messages of the prompt as history stores them, but for those that are stored.
func (r *run) promptEntries(t *turn.Turn) []agent.Entry {
	n := nextN(r.stored)
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
