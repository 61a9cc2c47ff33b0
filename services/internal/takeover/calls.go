package takeover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// Observations of calls that a dead run has left open.
const (
	lostText       = "the worker was lost during this call"
	unknownText    = lostText + "; the action may have happened, verify before repeating"
	notStartedText = "interrupted: the call was not started"
)

// ledger is what a run has stored of its tool calls and of the step that they belong to.
type ledger struct {
	calls   []store.ToolCall
	history []store.Message
}

func (t *Taker) ledger(ctx context.Context, id uuid.UUID) (ledger, error) {
	calls, err := t.Store.RunToolCalls(ctx, id)
	if err != nil {
		return ledger{}, fmt.Errorf("read tool calls: %w", err)
	}
	history, err := t.Store.RunMessages(ctx, id)
	if err != nil {
		return ledger{}, fmt.Errorf("read messages of the run: %w", err)
	}
	return ledger{calls: calls, history: history}, nil
}

// stallKey identifies the first open call by what it does, so that the same call is known again under another id; "" if
// no call is open.
func (l ledger) stallKey() string {
	open := slices.IndexFunc(l.calls, isOpen)
	if open < 0 {
		return ""
	}
	call := l.calls[open]
	what := call.CallID // of a call whose message cannot be read
	if asked, ok := l.asked(call.CallID); ok {
		what = canonical(asked.Arguments)
	}
	sum := sha256.Sum256([]byte(call.Name + "\x00" + what))
	return hex.EncodeToString(sum[:16])
}

func isOpen(c store.ToolCall) bool { return c.State == store.ToolIntent }

// asked finds a call in the message that made it, the run's own or that of a sub-agent.
func (l ledger) asked(id string) (llm.ToolCall, bool) {
	for _, row := range slices.Backward(l.history) {
		var m llm.Message
		if json.Unmarshal(row.Content, &m) != nil {
			continue // what cannot be read asks for nothing
		}
		if i := slices.IndexFunc(m.ToolCalls, func(c llm.ToolCall) bool { return c.ID == id }); i >= 0 {
			return m.ToolCalls[i], true
		}
	}
	return llm.ToolCall{}, false
}

// canonical makes arguments alike that differ only in white space or in the order of their names.
func canonical(arguments string) string {
	dec := json.NewDecoder(strings.NewReader(arguments))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil { // a model may write anything
		return arguments
	}
	out, err := json.Marshal(v)
	if err != nil { // it was JSON: cannot fail
		return arguments
	}
	return string(out)
}

// lastStep returns the calls that the run's newest message asks for, and the number of the message that comes next.
// Sub-agents have branches of their own.
func (l ledger) lastStep() (next int, calls []llm.ToolCall) {
	for _, row := range l.history {
		if row.Branch != 0 {
			continue
		}
		next = max(next, row.N+1)
		var m llm.Message
		if json.Unmarshal(row.Content, &m) == nil && len(m.ToolCalls) > 0 {
			calls = m.ToolCalls
		}
	}
	return next, calls
}

// close gives every open call a result, in the ledger and in the history, where calls and results stay in pairs and in
// the order of the calls.
func (l ledger) close(runGen int64, runID uuid.UUID) (messages []store.Message, calls []store.ToolCall, err error) {
	results := map[string]tool.Result{}
	for _, c := range l.calls {
		result, lost := resultOf(c)
		results[c.CallID] = result
		if !lost {
			continue
		}
		if c.Result, err = json.Marshal(result); err != nil {
			return nil, nil, fmt.Errorf("encode result of call %s: %w", c.CallID, err)
		}
		c.State = store.ToolFailed
		if tool.Effect(c.Effect) == tool.Unsafe {
			c.State = store.ToolUnknown
		}
		calls = append(calls, c)
	}
	next, asked := l.lastStep()
	for _, call := range asked {
		if l.answered(call.ID) {
			continue
		}
		result, known := results[call.ID]
		if !known {
			result = tool.Result{Outcome: tool.Error, Content: notStartedText}
		}
		content, err := json.Marshal(llm.Message{
			Role: llm.Tool, ToolCallID: call.ID, Text: result.Content, ToolError: result.Outcome != tool.OK,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("encode result of call %s: %w", call.ID, err)
		}
		messages = append(messages, store.Message{RunGen: runGen, N: next + len(messages), RunID: runID, Role: string(llm.Tool), Content: content})
	}
	return messages, calls, nil
}

// resultOf is the result of a call; lost says that it had none.
func resultOf(c store.ToolCall) (result tool.Result, lost bool) {
	switch {
	case isOpen(c) && tool.Effect(c.Effect) == tool.Unsafe:
		return tool.Result{Outcome: tool.Error, Content: unknownText}, true
	case isOpen(c):
		return tool.Result{Outcome: tool.Error, Content: lostText}, true
	}
	if json.Unmarshal(c.Result, &result) != nil || result.Outcome == "" { // settled without a result: by a stop
		return tool.Result{Outcome: tool.Error, Content: lostText}, false
	}
	return result, false
}

// answered reports whether the result of a call is in the history.
func (l ledger) answered(id string) bool {
	return slices.ContainsFunc(l.history, func(row store.Message) bool {
		var m llm.Message
		return row.Role == string(llm.Tool) && json.Unmarshal(row.Content, &m) == nil && m.ToolCallID == id
	})
}
