package agent

import (
	"context"
	"slices"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// restore rebuilds the state of the run from what is stored. It returns the step that an earlier attempt left open, or
// nil.
func (r *runner) restore() *step {
	r.ids.takeAll(r.in.History)
	stored := sortedEntries(r.in.Stored)
	if len(stored) == 0 {
		r.closeHistory()
	}
	for _, e := range stored {
		r.next = max(r.next, e.N+1)
		r.ids.takeAll([]llm.Message{e.Message})
		if e.Message.Role == llm.Assistant {
			r.steps++
		}
	}
	last := lastCalls(stored)
	if last < 0 {
		r.entries = append(r.entries, stored...)
		r.setBase()
		return nil
	}
	// What stands behind the last calls is theirs: results with gaps. They are added when the step is closed.
	r.entries = append(r.entries, stored[:last+1]...)
	r.setBase()
	return r.reopen(stored[last], stored[last+1:])
}

// closeHistory answers calls at the end of the history that no earlier run closed, so that the repair is stored once and
// not made again in every later request.
func (r *runner) closeHistory() {
	for _, call := range openCalls(r.in.History) {
		r.add(toolMessage(call.ID, *errorResult(interruptedText)), 0)
	}
}

// setBase makes the part of the requests that comes from earlier runs. Tool results at the beginning of this run belong
// to it.
func (r *runner) setBase() {
	r.lead = 0
	whole := slices.Clone(r.in.History)
	for _, e := range r.entries {
		if e.Message.Role != llm.Tool {
			break
		}
		whole = append(whole, e.Message)
		r.lead++
	}
	limit := max(r.limit, 0)
	if limit > 0 {
		limit += r.lead
	}
	if !r.in.HistoryComplete || limit < len(whole) { // the beginning of what a store returns may be that of a window
		whole = window(whole, limit)
	}
	r.base = repair(whole)
}

// lastCalls returns the index of the last message with tool calls, -1 if a message of another kind follows it.
func lastCalls(stored []Entry) int {
	for i, e := range slices.Backward(stored) {
		switch {
		case e.Message.Role == llm.Tool:
		case len(e.Message.ToolCalls) > 0:
			return i
		default:
			return -1
		}
	}
	return -1
}

// reopen makes a step from a stored message and from what the ledger says about its calls.
func (r *runner) reopen(message Entry, results []Entry) *step {
	s := &step{n: message.N}
	for i, call := range message.Message.ToolCalls {
		p := &pending{call: call, n: message.N + 1 + i}
		if stored := slices.IndexFunc(results, func(e Entry) bool { return e.Message.ToolCallID == call.ID }); stored >= 0 {
			p.stored = &results[stored]
		} else {
			r.recall(p)
		}
		s.calls = append(s.calls, p)
	}
	return s
}

// recall decides what becomes of a call whose result is not in the history.
func (r *runner) recall(p *pending) {
	row := slices.IndexFunc(r.in.Calls, func(c Call) bool { return c.ID == p.call.ID })
	if row < 0 { // refused calls have no row, and no intent means that nothing was started
		p.result = errorResult(notStartedText)
		return
	}
	ledger := r.in.Calls[row]
	p.row = &ledger
	switch {
	case ledger.Result != nil:
		p.result = ledger.Result
	case ledger.State == CallDone:
		p.result = &tool.Result{Outcome: tool.OK, Content: tool.NoOutput}
	case ledger.State != CallIntent || ledger.Effect == tool.Unsafe:
		r.settle(p, CallUnknown, errorResult(unknownText))
	default:
		r.again(p)
	}
}

// again prepares a read-only or idempotent call to be executed under its old key.
func (r *runner) again(p *pending) {
	t, ok := r.deps.Tools.Lookup(p.call.Name)
	if !ok {
		r.settle(p, CallFailed, errorResult(unknownToolText(p.call.Name, r.deps.Tools.Names())))
		return
	}
	args, err := t.CheckArguments(p.call.Arguments)
	if err != nil {
		r.settle(p, CallFailed, errorResult(refusedText(err)))
		return
	}
	p.arguments = args
}

// resume finishes an open step.
func (r *runner) resume(ctx context.Context, s *step) error {
	err := r.execute(ctx, s)
	r.close(s, err)
	return err
}

// addPrompt adds the new messages, but for those that are stored.
func (r *runner) addPrompt() {
	for _, p := range r.in.Prompt {
		known := func(e Entry) bool { return p.InboxSeq != 0 && e.InboxSeq == p.InboxSeq }
		if slices.ContainsFunc(r.in.Stored, known) {
			continue
		}
		r.addUser(p)
	}
}

func (r *runner) addUser(p Prompt) {
	m := p.Message
	m.Text = readable(m.Text)
	if isBlank(m.Text) {
		m.Text = emptyPrompt
	}
	r.add(m, p.InboxSeq)
}
