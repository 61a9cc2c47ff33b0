package follow

import (
	"slices"

	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// action is what a cursor needs next.
type action int

const (
	// goOn: nothing.
	goOn action = iota
	// ask for a snapshot: frames are missing.
	ask
	// look into the store: the run has probably ended.
	look
)

// cursor turns the frames and snapshots of a session into the events of one run, in order, without gaps and once. It is
// a plain value without locks, clock or bus.
type cursor struct {
	// uid is the message that is followed; "" if a run is.
	uid string
	// runID is the run, "" while it is not known which one answers the message.
	runID string
	// at is the last frame that was taken.
	at Position
	// shown: the client has something that a reset takes back.
	shown bool
	// behind: frames are missing, and only a snapshot or another attempt helps.
	behind bool
	// ended: the last frame of the attempt was taken.
	ended bool
}

// mine reports whether a frame or snapshot belongs to the run, and learns which run that is.
func (c *cursor) mine(runID string, uids []string) bool {
	if c.runID == "" && c.uid != "" && slices.Contains(uids, c.uid) {
		c.runID = runID
	}
	return c.runID != "" && c.runID == runID
}

// lost reports whether frames will not come by themselves.
func (c *cursor) lost() bool { return c.runID == "" || c.at == Position{} || c.behind }

// frame takes a frame as it comes off the bus.
func (c *cursor) frame(f *runv1.Frame) ([]Event, action) {
	at := Position{Gen: f.GetGen(), N: f.GetN()}
	switch {
	case !c.mine(f.GetRunId(), f.GetMsgUids()):
		return nil, goOn
	case at.Gen < c.at.Gen, at.Gen == c.at.Gen && at.N <= c.at.N: // seen, or of an attempt that was replaced
		return nil, goOn
	case at.Gen > c.at.Gen && f.GetKind() == runv1.FrameKind_FRAME_KIND_START && at.N == 1:
		events := c.restart()
		more, next := c.take(f)
		return append(events, more...), next
	case at.Gen == c.at.Gen && at.N == c.at.N+1:
		return c.take(f)
	case c.behind:
		return nil, goOn
	default:
		c.behind = true
		return nil, ask
	}
}

// snapshot takes the answer to a request for what comes behind the cursor.
func (c *cursor) snapshot(s *runv1.SnapshotReply) ([]Event, action) {
	if !c.mine(s.GetRunId(), s.GetMsgUids()) {
		return nil, goOn
	}
	if s.GetReset_() {
		return c.whole(s.GetFrames()), goOn
	}
	c.behind = false
	var events []Event
	next := goOn
	for _, f := range s.GetFrames() {
		more, then := c.frame(f)
		events, next = append(events, more...), max(next, then)
	}
	return events, next
}

// whole replaces everything by the frames of a full snapshot. They have no place of their own, only all of them
// together have: a client that has seen half of them must get the whole again.
func (c *cursor) whole(frames []*runv1.Frame) []Event {
	if len(frames) == 0 {
		return nil
	}
	last := frames[len(frames)-1]
	if last.GetGen() < c.at.Gen { // of an attempt that was replaced and does not know it
		return nil
	}
	events := c.restart()
	for _, f := range frames {
		more, _ := c.take(f)
		for _, e := range more {
			e.At = Position{}
			events = append(events, e)
		}
	}
	if n := len(events); n > 0 {
		events[n-1].At = c.at
	}
	return events
}

// restart takes back what was shown.
func (c *cursor) restart() []Event {
	c.behind = false
	if !c.shown {
		return nil
	}
	c.shown = false
	return []Event{{Kind: Reset}}
}

// take moves to f and shows it.
func (c *cursor) take(f *runv1.Frame) ([]Event, action) {
	c.at, c.behind, c.ended = Position{Gen: f.GetGen(), N: f.GetN()}, false, f.GetKind() == runv1.FrameKind_FRAME_KIND_END
	e := Event{At: c.at}
	switch f.GetKind() {
	case runv1.FrameKind_FRAME_KIND_START:
		e.Kind, e.RunID = RunStarted, f.GetRunId()
	case runv1.FrameKind_FRAME_KIND_TEXT:
		if f.GetText() == "" {
			return nil, goOn
		}
		e.Kind, e.Text = Text, f.GetText()
	case runv1.FrameKind_FRAME_KIND_STEP:
		e.Kind = Step
	case runv1.FrameKind_FRAME_KIND_TOOL_STARTED:
		e.Kind, e.Tool, e.CallID = ToolStarted, f.GetTool(), f.GetCallId()
	case runv1.FrameKind_FRAME_KIND_TOOL_PROGRESS:
		e.Kind, e.Tool, e.CallID, e.Text = ToolProgress, f.GetTool(), f.GetCallId(), f.GetText()
	case runv1.FrameKind_FRAME_KIND_TOOL_FINISHED:
		e.Kind, e.Tool, e.CallID, e.Outcome = ToolFinished, f.GetTool(), f.GetCallId(), f.GetOutcome()
	case runv1.FrameKind_FRAME_KIND_END:
		return nil, look
	default: // of a newer worker: nothing that this client knows
		return nil, goOn
	}
	c.shown = true
	return []Event{e}, goOn
}
