package turn

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// State is a state of the pipeline.
type State string

// The states, in order.
const (
	Preprocess State = "preprocess"
	Recognise  State = "recognise"
	Route      State = "route"
	Execute    State = "execute"
	Render     State = "render"
	Commit     State = "commit"
)

// Outcome says how a turn ended.
type Outcome string

// Done: answered. Rejected: the input is no turn, the reply is a notice that says why. Failed: the reply is an apology,
// Turn.Failure the reason. Cancelled: stopped; the reply is the partial text and may be empty.
const (
	Done      Outcome = "done"
	Rejected  Outcome = "rejected"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
)

// Message is one message that the turn answers.
type Message struct {
	InboxSeq int64
	// Name is the speaker as the platform names it; set it only in shared conversations.
	Name        string
	Text        string
	Attachments []event.Attachment
	Quote       *event.Quote
	// Added: the user sent it while the turn was worked on. The model is told so.
	Added bool
}

// Input is what a turn begins with.
type Input struct {
	RunID    string
	SKey     string
	Messages []Message
}

// Intent is what the messages want.
type Intent struct {
	Label      string
	Confidence float64
	// Span is the part of Turn.Text that the label stands on, in bytes.
	Span     Span
	Fallback string
}

// Span is [Start, End) in bytes.
type Span struct{ Start, End int }

// Decision says who executes the turn.
type Decision struct {
	// Executor is a key of Handlers.Executors.
	Executor string
	Tool     string
	// Priority is the run class; empty: as it is.
	Priority     string
	FallbackTool string
	Reason       string
}

// Reply is the one semantic answer, before any dialect.
type Reply struct {
	// Markdown is empty only if nothing is to be sent.
	Markdown string
	// Notice marks a message of the runtime rather than an answer.
	Notice bool
}

// Turn is what the states work on, each reading what the ones before have set.
type Turn struct {
	Input
	// Prompt and Text are set by preprocess: the cleaned messages, and their joined text for recognition.
	Prompt   []agent.Prompt
	Text     string
	Intent   Intent
	Decision Decision
	// Result is what the executor left to be stored; it is valid for every outcome.
	Result  agent.Result
	Reply   Reply
	Outcome Outcome
	// Failure is the reason of Rejected and Failed.
	Failure error
}

// Executor does the work of a turn.
type Executor interface {
	// Execute answers t.Prompt. The result is stored also with an error, except as Pipeline.Run says.
	Execute(ctx context.Context, t *Turn) (agent.Result, error)
}

// Committer ends a run.
type Committer interface {
	// Commit stores t.Result, the reply and the end of the run in one statement. It is called once per turn, for every
	// outcome, and turns Done into the cancelled form by itself if a stop came first. agent.ErrFenced: nothing was written.
	Commit(ctx context.Context, t *Turn) error
}

// StateChange tells that a state was left.
type StateChange struct {
	State    State
	Duration time.Duration
	// Err is nil, the failed guard, or the failure of the work.
	Err error
}

// Handlers are what the owner of one run supplies.
type Handlers struct {
	// Executors by name; React is required.
	Executors map[string]Executor
	Committer Committer
	// Fence is the entry guard of execute and commit: nil while the run is still held, else an error that is
	// agent.ErrFenced. It may be nil.
	Fence func(context.Context) error
	// Observe is told of every state; it may be nil and must not block.
	Observe func(context.Context, StateChange)
}

// React is the name of the executor that runs the ReAct loop.
const React = "react"
