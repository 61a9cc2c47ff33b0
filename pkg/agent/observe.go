package agent

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

// EventKind names what happened.
type EventKind string

// The kinds, with the fields that they set beside Kind.
const (
	// TextDelta: Text is the next piece of the model's text. The pieces between two StepEnded are one message.
	TextDelta EventKind = "text"
	// StepEnded: the text since the last one was only the preamble of tool calls.
	StepEnded EventKind = "step"
	// LLMStarted: Model. LLMFinished: Model, Usage, Duration, Err. One pair per request, repetitions included.
	LLMStarted  EventKind = "llm_started"
	LLMFinished EventKind = "llm_finished"
	// ToolStarted: Tool, CallID. ToolProgress: Text too. ToolFinished: Outcome, Duration, Size in bytes.
	ToolStarted  EventKind = "tool_started"
	ToolProgress EventKind = "tool_progress"
	ToolFinished EventKind = "tool_finished"
	// Answered: Tool, CallID, Outcome, once the answer to a question is stored.
	Answered EventKind = "answered"
)

// Event is one observable moment of a run.
type Event struct {
	Kind     EventKind
	Text     string
	Model    string
	Tool     string
	CallID   string
	Outcome  string
	Usage    llm.Usage
	Duration time.Duration
	Size     int
	Err      error
}

// Observer is told what happens. Calls are serialised, though they may come from several goroutines, and must not
// block: the loop waits for them.
type Observer func(ctx context.Context, e Event)
