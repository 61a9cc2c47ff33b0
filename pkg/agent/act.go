package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// step is one assistant message with tool calls, and its results as they come.
type step struct {
	// n is the position of the message; its results follow in the order of the calls.
	n     int
	calls []*pending
}

// pending is a call on its way to a result.
type pending struct {
	call llm.ToolCall
	n    int
	// arguments are checked; nil where nothing is to be executed.
	arguments json.RawMessage
	// row is the ledger row; nil for a call that was refused.
	row     *Call
	started bool
	// result is set once there is one; stored is the entry of an earlier attempt that holds it already.
	result *tool.Result
	stored *Entry
	// inboxSeq is the inbox row that the result was made from, 0 if none.
	inboxSeq int64
}

func (p *pending) ready() bool { return p.arguments != nil && p.result == nil && p.stored == nil }

// act checks the calls of an answer, stores message and intents, and executes what is sound.
func (r *runner) act(ctx context.Context, resp llm.Response) error {
	s := r.prepare(resp)
	err := r.perform(ctx, s)
	r.close(s, err)
	return err
}

func (r *runner) perform(ctx context.Context, s *step) error {
	if !s.hasReady() {
		return context.Cause(ctx)
	}
	if err := r.checkpoint(ctx); err != nil {
		return err
	}
	return r.execute(ctx, s)
}

func (s *step) hasReady() bool {
	for _, p := range s.calls {
		if p.ready() {
			return true
		}
	}
	return false
}

// prepare adds the message as it will be stored: ids unique, names as the tools are called, arguments checked. The
// results of refused calls are stored along with it, so that a later attempt cannot take them for calls to execute.
func (r *runner) prepare(resp llm.Response) *step {
	s := &step{n: r.next}
	m := llm.Message{Role: llm.Assistant, Text: resp.Message.Text}
	unknown := 0
	for i, call := range resp.Message.ToolCalls {
		p := &pending{call: call, n: s.n + 1 + i}
		p.call.ID = r.ids.unique(call.ID)
		if !r.check(p, resp.Finish) {
			unknown++
			r.ask(p.call.Name)
		}
		m.ToolCalls = append(m.ToolCalls, p.call)
		s.calls = append(s.calls, p)
	}
	r.countStrike(unknown == len(s.calls))
	r.add(m, 0)
	r.shown = "" // it is part of the message now
	r.next += len(s.calls)
	for _, p := range s.calls {
		if p.result != nil {
			r.save(p)
		}
	}
	return s
}

// ask remembers a name that no tool has.
func (r *runner) ask(name string) {
	if name = strings.TrimSpace(name); name != "" && !slices.Contains(r.asked, name) {
		r.asked = append(r.asked, name)
	}
}

func (r *runner) countStrike(all bool) {
	if all {
		r.strikes++
		return
	}
	r.strikes, r.asked = 0, nil
}

// check makes a call ready, or gives it the error that the model reads instead. It reports whether the tool is known.
func (r *runner) check(p *pending, finish llm.FinishReason) (known bool) {
	raw := p.call.Arguments
	p.call.Arguments = tool.Object(raw)
	t, known := r.deps.Tools.Lookup(p.call.Name)
	if !known {
		p.call.Name = shortName(p.call.Name)
		p.result = errorResult(unknownToolText(p.call.Name, r.deps.Tools.Names()))
		return false
	}
	p.call.Name = t.Name
	if finish == llm.FinishLength {
		p.result = errorResult(cutCallText)
		return true
	}
	args, err := t.CheckArguments(raw)
	if err != nil {
		p.result = errorResult(refusedText(err))
		return true
	}
	if t.Name == AskUser {
		args = r.dated(args)
	}
	p.arguments, p.call.Arguments = args, string(args)
	p.row = &Call{ID: p.call.ID, Name: t.Name, Effect: t.Effect, State: CallIntent}
	r.dirty = append(r.dirty, p.row)
	return true
}

// maxName bounds a name that a model made up, in bytes.
const maxName = 64

func shortName(name string) string {
	name = readable(name)
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// save puts the result among the entries to be stored.
func (r *runner) save(p *pending) {
	e := Entry{N: p.n, Message: toolMessage(p.call.ID, *p.result), InboxSeq: p.inboxSeq}
	p.stored = &e
	r.unsaved = append(r.unsaved, e)
}

// settle notes the result of a call in the ledger.
func (r *runner) settle(p *pending, state CallState, result *tool.Result) {
	p.result = result
	p.row.State, p.row.Result = state, result
	for _, row := range r.dirty {
		if row == p.row {
			return
		}
	}
	r.dirty = append(r.dirty, p.row)
}

// close pairs every call of the step with a result, also where err has interrupted the step, and adds the results to the
// run in the order of the calls. A handover leaves calls open, and so does a question: who goes on executes them again, or
// finds their outcome unknown. Unsafe ones that were not started are closed, so that nobody takes them for done.
func (r *runner) close(s *step, err error) {
	leaving := errors.Is(err, ErrHandover) || errors.Is(err, ErrSuspended)
	for _, p := range s.calls {
		open := p.stored == nil && p.result == nil
		if open && leaving && (p.started || p.row.Effect != tool.Unsafe) {
			continue
		}
		if open {
			r.abandon(p)
		}
		if p.stored == nil {
			r.save(p)
		}
		r.entries = append(r.entries, *p.stored)
		r.next = max(r.next, p.n+1)
	}
}

// abandon closes a call that the end of the run has overtaken.
func (r *runner) abandon(p *pending) {
	switch {
	case !p.started:
		r.settle(p, CallFailed, errorResult(notStartedText))
	case p.row.Effect == tool.Unsafe:
		r.settle(p, CallUnknown, errorResult(unknownText))
	default:
		r.settle(p, CallFailed, errorResult(interruptedText))
	}
}

// execute runs the ready calls of a step: neighbouring read-only ones at once, all others alone and in order. A question
// is alone, too: what stands behind it may depend on the answer.
func (r *runner) execute(ctx context.Context, s *step) error {
	for rest := s.calls; len(rest) > 0; {
		group := leadingGroup(rest)
		rest = rest[len(group):]
		run := r.runGroup
		if slices.ContainsFunc(group, (*pending).asks) {
			run = r.askGroup
		}
		if err := run(ctx, group); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// leadingGroup returns the calls at the beginning that may run at once. Calls that are not ready join any group.
func leadingGroup(calls []*pending) []*pending {
	reads := 0
	for i, p := range calls {
		if !p.ready() {
			continue
		}
		if p.row.Effect == tool.Read && !p.asks() {
			reads++
			continue
		}
		if reads > 0 {
			return calls[:i]
		}
		return calls[:i+1]
	}
	return calls
}

// runGroup runs a group and notes its results. The result of an unsafe call is stored before anything else happens.
func (r *runner) runGroup(ctx context.Context, group []*pending) error {
	reports := r.together(ctx, group)
	var failed error
	unsafe := false
	for i, p := range group {
		switch {
		case !p.ready():
		case reports[i].err != nil:
			failed = reports[i].err
		default:
			r.settle(p, reports[i].state, &reports[i].result)
			unsafe = unsafe || p.row.Effect == tool.Unsafe
		}
	}
	if failed == nil && unsafe {
		return r.record(ctx)
	}
	return failed
}

// recordTimeout bounds the checkpoint of a result after the context of the run has ended.
const recordTimeout = 10 * time.Second

// record stores the result of an unsafe call, also after a stop: that it was done must not be forgotten.
func (r *runner) record(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrFenced) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return r.checkpoint(ctx)
}
