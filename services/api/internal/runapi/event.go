package runapi

import "github.com/hermes-runtime/hermes/services/internal/follow"

// What clients follow and see of it.
type (
	// Event is one event of a run.
	Event = follow.Event
	// Kind names an event.
	Kind = follow.Kind
	// Position is where to resume behind an event.
	Position = follow.Position
	// Target is a message, or a run.
	Target = follow.Target
)

// The events of a run, see [follow.Kind].
const (
	RunStarted   = follow.RunStarted
	Text         = follow.Text
	Step         = follow.Step
	ToolStarted  = follow.ToolStarted
	ToolProgress = follow.ToolProgress
	ToolFinished = follow.ToolFinished
	Reset        = follow.Reset
	Done         = follow.Done
	Failed       = follow.Failed
	Cancelled    = follow.Cancelled
)

// ParsePosition reads "gen:n". What no event ever had as its id is the zero Position.
func ParsePosition(id string) Position { return follow.ParsePosition(id) }
