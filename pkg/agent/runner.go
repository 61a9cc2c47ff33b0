package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// strikesAllowed is how many steps in a row may ask for nothing but tools that do not exist.
const strikesAllowed = 3

// runner is one run on its way. It belongs to one goroutine; only emit may be called from others.
type runner struct {
	*Loop
	in      Run
	journal Journal

	observing sync.Mutex
	observer  Observer

	// base is what the requests carry of earlier runs: a repaired window of at most limit messages.
	base  []llm.Message
	limit int
	// entries are this run's messages in the order of N; next is the N of the one to come.
	entries []Entry
	// lead counts the entries at the beginning that are part of base: they close what an earlier run left open.
	lead int
	next int
	// unsaved entries and dirty calls go with the next checkpoint or the result.
	unsaved []Entry
	dirty   []*Call
	ids     callIDs

	// steps counts the model calls of the run, earlier attempts included; strikes the last ones with unknown tools only,
	// and asked their names.
	steps   int
	strikes int
	asked   []string
	// shown is the text of the last model call so far.
	shown  string
	result Result
}

func newRunner(l *Loop, run Run, journal Journal, observe Observer) *runner {
	r := &runner{Loop: l, in: run, journal: journal, observer: observe, ids: callIDs{}, limit: l.cfg.HistoryLimit, next: 1}
	if run.HistoryComplete {
		r.limit = max(r.limit, len(run.History))
	}
	return r
}

func (r *runner) run(ctx context.Context) (Result, error) {
	open := r.restore()
	if open != nil {
		if err := r.resume(ctx, open); err != nil {
			return r.interrupted(err)
		}
	}
	r.addPrompt()
	for r.steps < r.cfg.Steps {
		if r.in.Leave != nil && r.in.Leave() {
			return r.interrupted(ErrHandover)
		}
		if err := r.takeAdded(ctx); err != nil {
			return r.interrupted(err)
		}
		resp, err := r.think(ctx, r.toolSpecs(), "")
		if err != nil {
			return r.interrupted(err)
		}
		if len(resp.Message.ToolCalls) == 0 {
			return r.answer(ctx, resp)
		}
		r.emit(ctx, Event{Kind: StepEnded})
		if err := r.act(ctx, resp); err != nil {
			return r.interrupted(err)
		}
		if r.strikes >= strikesAllowed {
			return r.conclude(GaveUp, gaveUpText(r.asked, r.deps.Tools.Names())), nil
		}
	}
	return r.grace(ctx)
}

// answer ends the run with what the model said, asking once more if it said nothing.
func (r *runner) answer(ctx context.Context, resp llm.Response) (Result, error) {
	if isBlank(resp.Message.Text) && resp.Finish == llm.FinishFilter {
		return r.finish(GaveUp, filteredText), nil
	}
	if isBlank(resp.Message.Text) {
		var err error
		if resp, err = r.think(ctx, nil, nudgeText); err != nil {
			return r.interrupted(err)
		}
	}
	if !isBlank(resp.Message.Text) {
		return r.conclude(Done, resp.Message.Text), nil
	}
	if said := r.lastWords(); said != "" {
		return r.finish(Done, said), nil
	}
	return r.finish(GaveUp, noAnswerText), nil
}

// lastWords is what the model said beside its last tool calls: the answer of a model that says nothing after them.
func (r *runner) lastWords() string {
	for _, e := range slices.Backward(r.entries) {
		if e.Message.Role == llm.Assistant {
			return strings.TrimSpace(e.Message.Text)
		}
	}
	return ""
}

// grace is the one call after the budget: without tools, to sum up.
func (r *runner) grace(ctx context.Context) (Result, error) {
	resp, err := r.think(ctx, nil, graceText)
	var failed *llm.Error
	switch {
	case errors.As(err, &failed), err == nil && isBlank(resp.Message.Text):
		return r.conclude(Budget, budgetText(r.cfg.Steps)), nil
	case err != nil:
		return r.interrupted(err)
	default:
		return r.conclude(Budget, resp.Message.Text), nil
	}
}

// conclude ends the run with a text that becomes part of the conversation.
func (r *runner) conclude(outcome Outcome, text string) Result {
	r.add(llm.Message{Role: llm.Assistant, Text: text}, 0)
	return r.finish(outcome, text)
}

func (r *runner) finish(outcome Outcome, text string) Result {
	r.result.Outcome, r.result.Text = outcome, text
	r.result.Entries = sortedEntries(r.unsaved)
	for _, call := range r.dirty {
		r.result.Calls = append(r.result.Calls, *call)
	}
	r.result.HistoryUsed = max(len(r.base)-r.lead, 0)
	return r.result
}

// interrupted ends the run with an error. What was said before a stop is part of the conversation; what was said before
// a failure is not, since the user gets an apology instead.
func (r *runner) interrupted(err error) (Result, error) {
	switch {
	case errors.Is(err, ErrFenced):
		return Result{}, err
	case errors.Is(err, ErrStopped):
		if !isBlank(r.shown) {
			r.add(llm.Message{Role: llm.Assistant, Text: readable(r.shown)}, 0)
		}
		return r.finish(Stopped, r.shown), err
	case errors.Is(err, ErrHandover): // who goes on says it anew
		return r.finish(HandedOver, ""), err
	case errors.Is(err, ErrSuspended):
		return r.finish(Suspended, ""), err
	default:
		return r.finish(Failed, r.shown), err
	}
}

func (r *runner) emit(ctx context.Context, e Event) {
	r.observing.Lock()
	defer r.observing.Unlock()
	if r.observer != nil {
		r.observer(ctx, e)
	}
}

// silence ends the observation: calls that were abandoned may still say something.
func (r *runner) silence() {
	r.observing.Lock()
	defer r.observing.Unlock()
	r.observer = nil
}

// add appends a message of the run.
func (r *runner) add(m llm.Message, inboxSeq int64) {
	e := Entry{N: r.next, Message: m, InboxSeq: inboxSeq}
	r.next++
	r.entries = append(r.entries, e)
	r.unsaved = append(r.unsaved, e)
}

// checkpoint stores everything that is not stored yet.
func (r *runner) checkpoint(ctx context.Context) error {
	step := Step{Messages: sortedEntries(r.unsaved)}
	for _, call := range r.dirty {
		step.Calls = append(step.Calls, *call)
	}
	signal, err := r.journal.Checkpoint(ctx, step)
	if err != nil {
		// A stop that arrives while the journal waits shows as its error: what counts is why the run ends.
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrFenced) {
			return cause
		}
		return fmt.Errorf("checkpoint step %d: %w", r.steps, err)
	}
	r.unsaved, r.dirty = nil, nil
	if signal.Stop {
		return ErrStopped
	}
	return nil
}

// takeAdded takes what was added while the run worked, and stores it at once: nobody else shall answer it.
func (r *runner) takeAdded(ctx context.Context) error {
	if r.in.Added == nil {
		return nil
	}
	added, err := r.in.Added(ctx)
	if err != nil || len(added) == 0 {
		return err
	}
	for _, p := range added {
		r.addUser(p)
	}
	return r.checkpoint(ctx)
}

// mayStart reports why nothing may be begun, nil if it may.
func (r *runner) mayStart(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil || r.in.Check == nil {
		return cause
	}
	return r.in.Check(ctx)
}

func sortedEntries(entries []Entry) []Entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return a.N - b.N })
}

func (r *runner) toolSpecs() []llm.ToolSpec {
	specs := r.deps.Tools.Specs()
	out := make([]llm.ToolSpec, len(specs))
	for i, s := range specs {
		out[i] = llm.ToolSpec{Name: s.Name, Description: s.Description, Parameters: s.Parameters}
	}
	return out
}

func (r *runner) idemKey(callID string) string { return r.in.ID + ":" + callID }

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

func errorResult(text string) *tool.Result { return &tool.Result{Outcome: tool.Error, Content: text} }
