package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// preprocess cleans the messages. Guards: there is text or an attachment; the text is within its limit and storable.
func (s *stages) preprocess(context.Context) error {
	t := s.turn
	var texts []string
	for _, m := range t.Messages {
		prompt, text, ok := m.prompt()
		if !ok {
			continue
		}
		t.Prompt = append(t.Prompt, prompt)
		texts = append(texts, text)
	}
	t.Text = strings.Join(texts, "\n")
	switch {
	case len(t.Prompt) == 0:
		return &GuardError{State: Preprocess, Field: "text", Reason: "neither text nor attachment"}
	case len(t.Text) > s.cfg.MaxTextBytes:
		reason := fmt.Sprintf("%d bytes, at most %d are allowed", len(t.Text), s.cfg.MaxTextBytes)
		return &GuardError{State: Preprocess, Field: "text", Reason: reason}
	default:
		return nil
	}
}

// Below unsure an intent is not believed, below routable it is not acted upon.
const (
	unsure   = 0.45
	routable = 0.7
)

// recognise finds the intent. Guards: label set, confidence within 0 and 1 and not unsure, span inside the text. On
// failure the turn is chat.
func (s *stages) recognise(ctx context.Context) error {
	found, err := s.deps.Recogniser.Recognise(ctx, s.turn)
	if err == nil {
		err = checkIntent(found, s.turn.Text)
	}
	if err != nil {
		found = chatIntent(s.turn)
	}
	s.turn.Intent = found
	return err
}

func checkIntent(i Intent, text string) error {
	fail := func(field, reason string) error { return &GuardError{State: Recognise, Field: field, Reason: reason} }
	switch {
	case i.Label == "":
		return fail("intent.label", "is empty")
	case !(i.Confidence >= 0 && i.Confidence <= 1): // false for NaN too
		return fail("intent.confidence", fmt.Sprintf("%v is not within 0 and 1", i.Confidence))
	case i.Confidence < unsure:
		return fail("intent.confidence", fmt.Sprintf("%v is below %v", i.Confidence, unsure))
	case i.Span.Start < 0 || i.Span.End < i.Span.Start || i.Span.End > len(text):
		return fail("intent.span", fmt.Sprintf("[%d, %d) is outside the text", i.Span.Start, i.Span.End))
	default:
		return nil
	}
}

// route decides who executes. Guards: an intent that is sure enough; a decision that names an executor. On failure the
// ReAct loop takes the turn.
func (s *stages) route(ctx context.Context) error {
	decision, err := s.decide(ctx)
	if err != nil {
		decision = Decision{Executor: React, Reason: err.Error()}
	}
	s.turn.Decision = decision
	return err
}

func (s *stages) decide(ctx context.Context) (Decision, error) {
	if c := s.turn.Intent.Confidence; c < routable {
		reason := fmt.Sprintf("%v is below %v", c, routable)
		return Decision{}, &GuardError{State: Route, Field: "intent.confidence", Reason: reason}
	}
	decision, err := s.deps.Router.Route(ctx, s.turn)
	if err != nil {
		return Decision{}, err
	}
	if s.Executors[decision.Executor] == nil {
		reason := fmt.Sprintf("no executor %q", decision.Executor)
		return Decision{}, &GuardError{State: Route, Field: "decision.executor", Reason: reason, Err: ErrRoutingDecisionMissing}
	}
	return decision, nil
}

// execute runs the chosen executor. Guards: the run is held; there is a result.
func (s *stages) execute(ctx context.Context) error {
	if err := s.held(ctx); err != nil {
		return err
	}
	name := s.turn.Decision.Executor
	executor := s.Executors[name]
	if executor == nil { // only if the owner supplied no ReAct loop
		return &ExecuteError{Executor: name, Err: ErrRoutingDecisionMissing}
	}
	var err error
	if s.turn.Result, err = executor.Execute(ctx, s.turn); err != nil {
		return err
	}
	if s.turn.Result.Outcome == "" {
		return &ExecuteError{Executor: name, Err: &GuardError{State: Execute, Field: "result.outcome", Reason: "is empty"}}
	}
	return nil
}

// Texts of the runtime itself.
const (
	apologyText  = "Sorry, I could not finish this: something went wrong on my side. Please try again in a moment."
	overdueText  = "Sorry, this took longer than I am allowed to work on one message, so I stopped."
	rejectedText = "I could not read that message: "
	emptyText    = "I have no answer to that."
)

// render makes the one semantic answer. Guard: it is not empty, unless the turn was cancelled.
func (s *stages) render(ctx context.Context) error {
	t := s.turn
	switch t.Outcome {
	case Rejected:
		t.Reply = Reply{Markdown: rejectedText + rejection(t.Failure) + ".", Notice: true}
	case Failed:
		t.Reply = Reply{Markdown: apology(ctx), Notice: true}
	case Cancelled:
		t.Reply = Reply{Markdown: strings.TrimSpace(t.Result.Text)}
	default:
		t.Reply = Reply{Markdown: strings.TrimSpace(t.Result.Text)}
		if t.Reply.Markdown == "" {
			t.Reply = Reply{Markdown: emptyText, Notice: true}
			return &GuardError{State: Render, Field: "reply", Reason: "is empty"}
		}
	}
	return nil
}

func rejection(err error) string {
	var guard *GuardError
	if errors.As(err, &guard) {
		return guard.Reason
	}
	return "it is not valid"
}

func apology(ctx context.Context) string {
	if overdue(ctx) {
		return overdueText
	}
	return apologyText
}

// commit ends the run. Guard: the run is held.
func (s *stages) commit(ctx context.Context) error {
	if err := s.held(ctx); err != nil {
		return err
	}
	return s.Committer.Commit(ctx, s.turn)
}
