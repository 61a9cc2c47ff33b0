package agent

import (
	"context"
	"time"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// Run is one turn to be answered.
type Run struct {
	// ID is the run_id; with the call id it makes the idempotency key "run_id:call_id".
	ID string
	// Session is the skey: it names the workspace of the tools.
	Session string
	Tenant  string
	// User is who the tools act for.
	User string
	// Notes are added to the system prompt of this run: place, time, who is talking.
	Notes string
	// History is what earlier runs of the conversation stored, oldest first.
	History []llm.Message
	// HistoryComplete: History is the whole conversation as its client keeps it. It is not cut to the limit.
	HistoryComplete bool
	// Prompt are the new messages, each with its inbox row. Those whose row Stored names already are left out.
	Prompt []Prompt
	// Stored and Calls are what an earlier attempt of this run checkpointed: its messages in the order of N, and its tool
	// ledger. Both are empty on the first attempt.
	Stored []Entry
	Calls  []Call
	// Leave, if not nil, is asked between two steps, when no call is open: true ends the loop with ErrHandover.
	Leave func() bool
	// Check, if not nil, is asked right before each model call and each start of a tool. It may wait until it is known
	// whether the run is still held; an error ends the run with it.
	Check func(ctx context.Context) error
	// Added, if not nil, is asked between two steps, when no call is open, for messages that came while the run worked. They
	// stand behind the results of the step and are checkpointed before anything else happens.
	Added func(ctx context.Context) ([]Prompt, error)
	// Answer, if not nil, is asked for what is known about a question: nil while there is neither an answer nor any use in
	// giving up on one.
	Answer func(ctx context.Context, q Question) (*Answer, error)
}

// Question is what a run waits for.
type Question struct {
	// CallID is the call that the answer is the result of.
	CallID string
	Text   string
	// Options are what the answer may be chosen from; others are welcome.
	Options []string
	// Until is when there is no use in waiting any longer.
	Until time.Time
}

// Answer settles a question.
type Answer struct {
	Result tool.Result
	// InboxSeq is the inbox row that the answer was made from, 0 if none.
	InboxSeq int64
}

// Prompt is a new message.
type Prompt struct {
	Message  llm.Message
	InboxSeq int64
}

// Entry is a message of the run as history stores it.
type Entry struct {
	// N is the position within the run, from 1. Results of one step have the numbers behind their assistant message in
	// the order of its calls, so entries may be checkpointed with gaps that later ones fill.
	N       int
	Message llm.Message
	// InboxSeq is the inbox row that the message was made from, 0 if none.
	InboxSeq int64
}

// CallState is the state of a tool call in the ledger; the values are those of the store.
type CallState string

// A call is an intent until its result is known; unknown means that it may have happened.
const (
	CallIntent  CallState = "intent"
	CallDone    CallState = "done"
	CallFailed  CallState = "failed"
	CallUnknown CallState = "unknown"
)

// Call is a row of the tool ledger. Calls that were refused before they could start (unknown tool, bad arguments) have
// no row.
type Call struct {
	ID     string
	Name   string
	Effect tool.Effect
	State  CallState
	// Result is nil while the call is an intent.
	Result *tool.Result
}

// Outcome says how a run ended.
type Outcome string

// Done: there is an answer. Budget: the steps were used up and the text sums up. GaveUp: the model kept asking for tools
// that do not exist, or had nothing to say. Stopped: see ErrStopped. Failed: the model could not be reached or refused.
// HandedOver: see ErrHandover. Suspended: see ErrSuspended.
const (
	Done       Outcome = "done"
	Budget     Outcome = "budget"
	GaveUp     Outcome = "gave_up"
	Stopped    Outcome = "stopped"
	Failed     Outcome = "failed"
	HandedOver Outcome = "handed_over"
	Suspended  Outcome = "suspended"
)

// Result is what a run leaves behind.
type Result struct {
	Outcome Outcome
	// Text is the answer; of a stopped or failed run the partial text of the last model call, which may be empty.
	Text string
	// Entries and Calls are not checkpointed yet and belong into the final statement of the run. Every call in Entries or
	// in what was checkpointed has its result, but for those that a handover or a question leaves open.
	Entries []Entry
	Calls   []Call
	// Usage and Steps count this attempt's model calls.
	Usage llm.Usage
	Steps int
	// Question is what a suspended run waits for.
	Question *Question
	// HistoryUsed is how many messages of the history the last request carried: less than the limit where the model's
	// context was too small, so that the next turn can begin with the shorter one.
	HistoryUsed int
}
