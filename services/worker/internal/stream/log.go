package stream

import (
	"strings"
	"time"

	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

const (
	// interval is the shortest time between two text frames of a run.
	interval = 30 * time.Millisecond
	// A run keeps its newest frames up to these bounds; who missed more than that gets the whole text instead.
	keptFrames = 512
	keptBytes  = 64 << 10
)

// frameLog numbers the frames of one run and remembers enough of them to answer snapshots. It is a plain value without
// locks or clock.
type frameLog struct {
	gen     int64
	runID   string
	msgUIDs []string
	n       int64
	// kept are the newest frames, bytes the text that they hold.
	kept  []*runv1.Frame
	bytes int
	// text is the text since the last step; pending its end that is in no frame yet.
	text    strings.Builder
	pending strings.Builder
	// open are the tool calls that have started and not finished.
	open []*runv1.Frame
	// end is the last frame, once it is there.
	end *runv1.Frame
	cut time.Time
}

// add numbers f, after the text that came before it. It returns the frames to be sent.
func (l *frameLog) add(now time.Time, f *runv1.Frame) []*runv1.Frame {
	frames := l.flush(now)
	l.keep(f)
	l.note(f)
	return append(frames, f)
}

// note keeps what a snapshot has to tell apart from the frames.
func (l *frameLog) note(f *runv1.Frame) {
	switch f.GetKind() {
	case runv1.FrameKind_FRAME_KIND_STEP:
		l.text.Reset()
	case runv1.FrameKind_FRAME_KIND_TOOL_STARTED:
		l.open = append(l.open, f)
	case runv1.FrameKind_FRAME_KIND_TOOL_FINISHED:
		for i, o := range l.open {
			if o.GetCallId() == f.GetCallId() {
				l.open = append(l.open[:i:i], l.open[i+1:]...)
				break
			}
		}
	case runv1.FrameKind_FRAME_KIND_END:
		l.end = f
	default:
	}
}

// write takes a piece of text; due says that it may go out now.
func (l *frameLog) write(now time.Time, text string) (due bool) {
	l.text.WriteString(text)
	l.pending.WriteString(text)
	return l.due(now)
}

// due: the last text frame is old enough, or there is none yet, so that the first token goes at once.
func (l *frameLog) due(now time.Time) bool { return now.Sub(l.cut) >= interval }

// flush makes a frame of the pending text, if there is any.
func (l *frameLog) flush(now time.Time) []*runv1.Frame {
	if l.pending.Len() == 0 {
		return nil
	}
	f := &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_TEXT, Text: l.pending.String()}
	l.pending.Reset()
	l.cut = now
	l.keep(f)
	return []*runv1.Frame{f}
}

func (l *frameLog) keep(f *runv1.Frame) {
	l.n++
	f.Gen, f.RunId, f.N = l.gen, l.runID, l.n
	l.kept = append(l.kept, f)
	l.bytes += len(f.GetText())
	drop := 0
	for len(l.kept)-drop > keptFrames || l.bytes > keptBytes {
		l.bytes -= len(l.kept[drop].GetText())
		drop++
	}
	if drop > 0 {
		l.kept = append(l.kept[:0:0], l.kept[drop:]...)
	}
}

// snapshot answers a client that has seen everything up to (gen, n): with what it missed, or with the whole if it saw
// another attempt or too little.
func (l *frameLog) snapshot(gen, n int64) *runv1.SnapshotReply {
	reply := &runv1.SnapshotReply{RunId: l.runID, MsgUids: l.msgUIDs}
	first := l.n - int64(len(l.kept)) + 1
	if gen == l.gen && n > 0 && n >= first-1 && n <= l.n {
		reply.Frames = l.kept[n-first+1:]
		return reply
	}
	reply.Reset_ = true
	reply.Frames = l.whole()
	return reply
}

// whole is the state in as few frames as possible; the last one carries the number up to which it tells everything.
func (l *frameLog) whole() []*runv1.Frame {
	if l.n == 0 {
		return nil
	}
	frames := []*runv1.Frame{{
		Gen: l.gen, RunId: l.runID, N: 1, Kind: runv1.FrameKind_FRAME_KIND_START, MsgUids: l.msgUIDs,
	}}
	frames = append(frames, l.open...)
	text := &runv1.Frame{Gen: l.gen, RunId: l.runID, N: l.n, Kind: runv1.FrameKind_FRAME_KIND_TEXT, Text: l.text.String()}
	if l.end == nil {
		return append(frames, text)
	}
	text.N--
	return append(frames, text, l.end)
}
