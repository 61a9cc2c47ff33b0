package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

const (
	// continuations is how often an answer is asked to go on after it reached the output limit.
	continuations = 3
	// shortenings is how often the history is halved for a model whose context is too small.
	shortenings = 5
)

// attempt counts what one answer has cost so far.
type attempt struct {
	failures      int
	continuations int
	shortenings   int
	waits         *backoff.ExponentialBackOff
}

// think gets one whole answer of the model. Failures are repeated by their class; an answer that breaks off after some
// of it was shown is continued, never repeated. The text of the answer is what was shown, in one piece.
func (r *runner) think(ctx context.Context, tools []llm.ToolSpec, note string) (llm.Response, error) {
	r.steps++
	r.result.Steps++
	r.shown = ""
	a := attempt{waits: r.newBackOff()}
	for {
		before := r.shown
		resp, err := r.call(ctx, r.request(tools, note))
		if err == nil {
			if r.shown == before { // the model does not stream
				r.show(ctx, resp.Message.Text)
			}
			if a.goesOn(resp, r.shown) {
				continue
			}
			resp.Message.Text = readable(r.shown)
			return resp, nil
		}
		if err := r.afterFailure(ctx, &a, err); err != nil {
			return llm.Response{}, err
		}
	}
}

// goesOn reports whether the answer was cut at the output limit and should be continued.
func (a *attempt) goesOn(resp llm.Response, shown string) bool {
	if resp.Finish != llm.FinishLength || len(resp.Message.ToolCalls) > 0 || isBlank(shown) {
		return false
	}
	a.continuations++
	return a.continuations <= continuations
}

// afterFailure waits until a failed call may be repeated, or returns the error that ends the run.
func (r *runner) afterFailure(ctx context.Context, a *attempt, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var failed *llm.Error
	if !errors.As(err, &failed) {
		return err
	}
	if failed.Kind == llm.KindContextOverflow && a.shortenings < shortenings && r.shorten() {
		a.shortenings++
		return nil
	}
	a.failures++
	if !llm.Retryable(err) || a.failures >= r.cfg.Retry.Attempts || failed.RetryAfter > r.cfg.Retry.MaxWait {
		return err
	}
	wait := max(a.waits.NextBackOff(), failed.RetryAfter)
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return err // the run would end while it waits: better to tell now
	}
	return sleep(ctx, wait)
}

// shorten halves the history that requests carry. It reports false if there is none left to give up: the messages of
// this run are never cut.
func (r *runner) shorten() bool {
	used := len(r.base) - r.lead
	if used <= 0 {
		return false
	}
	r.limit = used / 2
	if r.limit == 0 {
		r.limit = -1
	}
	r.setBase()
	return true
}

func (r *runner) newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = r.cfg.Retry.Initial, r.cfg.Retry.Max, 2
	return b
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request builds the next call: prompt, window, this run, and, for this call only, what was shown of an answer that
// broke off, and a note.
func (r *runner) request(tools []llm.ToolSpec, note string) llm.Request {
	messages := slices.Clone(r.base)
	for _, e := range r.entries[r.lead:] {
		messages = append(messages, e.Message)
	}
	if note != "" {
		messages = append(messages, llm.Message{Role: llm.User, Text: note})
	}
	if !isBlank(r.shown) {
		messages = append(messages,
			llm.Message{Role: llm.Assistant, Text: readable(r.shown)}, llm.Message{Role: llm.User, Text: continueText})
	}
	return llm.Request{
		Model: r.cfg.ModelName, System: r.system(), Messages: messages, Tools: tools, MaxTokens: r.cfg.OutputTokens,
	}
}

func (r *runner) system() string {
	return strings.TrimSpace(r.cfg.System + "\n\n" + r.in.Notes)
}

// show passes on a piece of text.
func (r *runner) show(ctx context.Context, text string) {
	if text == "" {
		return
	}
	r.shown += text
	r.emit(ctx, Event{Kind: TextDelta, Text: text})
}

// call is one request with its span and its events; none begins once the run may start nothing.
func (r *runner) call(ctx context.Context, req llm.Request) (llm.Response, error) {
	if err := r.mayStart(ctx); err != nil {
		return llm.Response{}, err
	}
	start := time.Now()
	spanCtx, end := r.tel.chat(ctx, req.Model, r.in.Session)
	r.emit(spanCtx, Event{Kind: LLMStarted, Model: req.Model})
	resp, err := r.deps.Model.Generate(spanCtx, req, func(text string) {
		r.show(spanCtx, text)
	})
	end(resp, err)
	r.result.Usage = r.result.Usage.Add(resp.Usage)
	r.emit(spanCtx, Event{Kind: LLMFinished, Model: req.Model, Usage: resp.Usage, Duration: time.Since(start), Err: err})
	return resp, err
}
