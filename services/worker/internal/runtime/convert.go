package runtime

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// The loop's messages and calls, and their rows. The JSON forms are those of llm.Message and tool.Result.

func (r *run) rowsOf(entries []agent.Entry) ([]store.Message, error) {
	rows := make([]store.Message, len(entries))
	for i, e := range entries {
		content, err := json.Marshal(e.Message)
		if err != nil {
			return nil, fmt.Errorf("encode message %d: %w", e.N, err)
		}
		rows[i] = store.Message{
			RunGen: r.FirstGen, N: e.N, RunID: r.RunID, Role: string(e.Message.Role), Content: content, InboxSeq: e.InboxSeq,
		}
	}
	return rows, nil
}

// stepOf is what a checkpoint stores of a step. The rows that its messages were made from are taken out of their place
// where the run has found them behind its own.
func (r *run) stepOf(step agent.Step) (store.Checkpoint, error) {
	messages, errMessages := r.rowsOf(step.Messages)
	calls, errCalls := ledgerOf(step.Calls)
	return store.Checkpoint{
		RunGen: r.FirstGen, Messages: messages, ToolCalls: calls, Taken: r.takenBy(step.Messages),
	}, errors.Join(errMessages, errCalls)
}

func ledgerOf(calls []agent.Call) ([]store.ToolCall, error) {
	rows := make([]store.ToolCall, len(calls))
	for i, c := range calls {
		rows[i] = store.ToolCall{CallID: c.ID, Name: c.Name, Effect: string(c.Effect), State: store.ToolState(c.State)}
		if c.Result == nil {
			continue
		}
		var err error
		if rows[i].Result, err = json.Marshal(c.Result); err != nil {
			return nil, fmt.Errorf("encode result of call %s: %w", c.ID, err)
		}
	}
	return rows, nil
}

// entriesOf leaves out what never gets into a prompt.
func entriesOf(rows []store.Message) ([]agent.Entry, error) {
	var entries []agent.Entry
	for _, row := range rows {
		if row.Role == store.RoleSuperseded {
			continue
		}
		e := agent.Entry{N: row.N, InboxSeq: row.InboxSeq}
		if err := json.Unmarshal(row.Content, &e.Message); err != nil {
			return nil, fmt.Errorf("decode message %d: %w", row.N, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func callsOf(rows []store.ToolCall) ([]agent.Call, error) {
	calls := make([]agent.Call, len(rows))
	for i, row := range rows {
		calls[i] = agent.Call{ID: row.CallID, Name: row.Name, Effect: tool.Effect(row.Effect), State: agent.CallState(row.State)}
		if len(row.Result) == 0 || string(row.Result) == "null" {
			continue
		}
		calls[i].Result = &tool.Result{}
		if err := json.Unmarshal(row.Result, calls[i].Result); err != nil {
			return nil, fmt.Errorf("decode result of call %s: %w", row.CallID, err)
		}
	}
	return calls, nil
}

// messagesOf reads rows of earlier runs, without those that a newer message has replaced. One that cannot be read is left
// out: it must not keep the session from going on.
func messagesOf(rows []store.Message) (messages []llm.Message, unreadable int) {
	for _, row := range rows {
		if row.Role == store.RoleSuperseded {
			continue
		}
		var m llm.Message
		if err := json.Unmarshal(row.Content, &m); err != nil {
			unreadable++
			continue
		}
		messages = append(messages, m)
	}
	return messages, unreadable
}
