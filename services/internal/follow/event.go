package follow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Kind names an event of a run.
type Kind string

// The events of a run. Done, Failed and Cancelled are final: exactly one of them is the last event, and its text is the
// committed one.
const (
	RunStarted   Kind = "run_started"
	Text         Kind = "text"
	Step         Kind = "step"
	ToolStarted  Kind = "tool_started"
	ToolProgress Kind = "tool_progress"
	ToolFinished Kind = "tool_finished"
	// Reset: forget the text so far, a new attempt or the whole text follows.
	Reset     Kind = "reset"
	Done      Kind = "done"
	Failed    Kind = "failed"
	Cancelled Kind = "cancelled"
)

// Final reports whether nothing follows.
func (k Kind) Final() bool { return k == Done || k == Failed || k == Cancelled }

// Event is one event of a run; which fields are set depends on its kind.
type Event struct {
	Kind Kind
	// At is where to resume behind this event; the zero Position says nothing.
	At Position
	// RunID is "" where a command was answered without a run.
	RunID string
	// Text is a piece of the answer, what a tool says, or the whole answer.
	Text    string
	Tool    string
	CallID  string
	Outcome string
	// Usage is that of an ended run, nil if unknown.
	Usage json.RawMessage
	// Code says why a message was not answered, "" where its run says all.
	Code string
}

// MarshalJSON returns the data of the event as clients see it.
func (e Event) MarshalJSON() ([]byte, error) { return json.Marshal(e.data()) }

func (e Event) data() any {
	switch e.Kind {
	case RunStarted:
		return struct {
			RunID string `json:"run_id"`
		}{e.RunID}
	case Text:
		return struct {
			Text string `json:"text"`
		}{e.Text}
	case ToolStarted:
		return toolData{Tool: e.Tool, CallID: e.CallID}
	case ToolProgress:
		return struct {
			toolData
			Text string `json:"text"`
		}{toolData{e.Tool, e.CallID}, e.Text}
	case ToolFinished:
		return struct {
			toolData
			Outcome string `json:"outcome"`
		}{toolData{e.Tool, e.CallID}, e.Outcome}
	case Done, Failed, Cancelled:
		return struct {
			RunID string          `json:"run_id"`
			Text  string          `json:"text"`
			Usage json.RawMessage `json:"usage,omitempty"`
			Code  string          `json:"code,omitempty"`
		}{e.RunID, e.Text, e.Usage, e.Code}
	default: // step and reset say all by their name
		return struct{}{}
	}
}

type toolData struct {
	Tool   string `json:"tool"`
	CallID string `json:"call_id"`
}

// Position is the place of a frame: (Gen, N) rises within a session's run.
type Position struct{ Gen, N int64 }

// String returns "gen:n", the id of an event.
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Gen, p.N) }

// ParsePosition reads "gen:n". What no event ever had as its id is the zero Position.
func ParsePosition(id string) Position {
	gen, n, _ := strings.Cut(id, ":")
	p := Position{Gen: number(gen), N: number(n)}
	if p.Gen <= 0 || p.N <= 0 {
		return Position{}
	}
	return p
}

// number is 0 for what is none.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
