package stream

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// earlyRequests bounds the requests that wait for a run to begin.
const earlyRequests = 16

// Stream is what one attempt at a run shows. Its methods are safe for concurrent use and do not wait for the bus.
type Stream struct {
	hub  *Hub
	skey string

	mu    sync.Mutex
	log   frameLog
	early []bus.Msg
	began bool
	// ended: there is an end frame. closed: there will be no frame and no answer any more.
	ended, closed bool
	// read: the client reads its replies, so it always looks. Others look until watchedUntil.
	read         bool
	watchedUntil time.Time
	// held: the hub will come back for the text.
	held bool
}

// Begin starts the stream once the run is claimed: msgUIDs are the messages that it answers.
func (s *Stream) Begin(ctx context.Context, msgUIDs []string, read bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.read, s.log.msgUIDs = true, read, msgUIDs
	early := s.early
	s.early = nil
	if len(early) > 0 {
		s.watchedUntil = time.Now().Add(watched)
	}
	s.add(ctx, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_START, MsgUids: msgUIDs})
	for _, m := range early {
		s.reply(ctx, m)
	}
}

// Text shows a piece of the answer: the first at once, then in frames of at least 30 ms.
func (s *Stream) Text(ctx context.Context, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() {
		return
	}
	now := time.Now()
	due := s.log.write(now, text)
	switch {
	case !s.looked(now): // nobody looks: the text waits for the next frame or request
	case due:
		s.send(ctx, s.log.flush(now))
	case !s.held:
		s.held = true
		s.hub.hold(s)
	}
}

// Step says that the text so far was only the preamble of tool calls.
func (s *Stream) Step(ctx context.Context) {
	s.frame(ctx, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_STEP})
}

// Merge tells that the run answers more messages from here on, between two steps.
func (s *Stream) Merge(ctx context.Context, msgUIDs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() {
		return
	}
	s.log.msgUIDs = append(slices.Clone(s.log.msgUIDs), msgUIDs...)
	s.add(ctx, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_STEP, MsgUids: msgUIDs})
}

// ToolStarted shows that a tool runs.
func (s *Stream) ToolStarted(ctx context.Context, tool, callID string) {
	s.frame(ctx, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_TOOL_STARTED, Tool: tool, CallId: callID})
}

// ToolProgress shows what a tool says.
func (s *Stream) ToolProgress(ctx context.Context, tool, callID, text string) {
	s.frame(ctx, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_TOOL_PROGRESS, Tool: tool, CallId: callID, Text: text})
}

// ToolFinished shows how a tool ended: ok, error, timeout or denied.
func (s *Stream) ToolFinished(ctx context.Context, tool, callID, outcome string) {
	s.frame(ctx, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_TOOL_FINISHED, Tool: tool, CallId: callID, Outcome: outcome})
}

// End is the last frame; send it after the commit. outcome is done, failed or cancelled.
func (s *Stream) End(ctx context.Context, outcome string) {
	s.frame(ctx, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_END, Outcome: outcome})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// Close takes the stream off the hub. A stream that was not ended ends in silence: a later attempt replaces it.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.hub.remove(s)
}

func (s *Stream) frame(ctx context.Context, f *runv1.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over() {
		s.add(ctx, f)
	}
}

func (s *Stream) add(ctx context.Context, f *runv1.Frame) {
	now := time.Now()
	frames := s.log.add(now, f)
	if s.looked(now) {
		s.send(ctx, frames)
	}
}

func (s *Stream) over() bool { return s.ended || s.closed }

func (s *Stream) looked(now time.Time) bool { return s.read || now.Before(s.watchedUntil) }

// send publishes under the lock, so that frames leave in the order of their numbers.
func (s *Stream) send(ctx context.Context, frames []*runv1.Frame) {
	for _, f := range frames {
		s.hub.publish(ctx, bus.DeltaSubject(s.skey), f)
	}
}

// flush sends held back text, or has the hub come again if it is still too early.
func (s *Stream) flush(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.over() && !s.log.due(now) {
		s.hub.hold(s)
		return
	}
	s.held = false
	if !s.over() && s.looked(now) {
		s.send(ctx, s.log.flush(now))
	}
}

// request answers a snapshot request and keeps the frames coming.
func (s *Stream) request(ctx context.Context, m bus.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.closed:
	case !s.began:
		if len(s.early) < earlyRequests {
			s.early = append(s.early, m)
		}
	default:
		frames := s.log.flush(now) // the reply includes it; who looked before needs it as a frame
		if s.looked(now) {
			s.send(ctx, frames)
		}
		s.watchedUntil = now.Add(watched)
		s.reply(ctx, m)
	}
}

func (s *Stream) reply(ctx context.Context, m bus.Msg) {
	if m.Reply != "" {
		s.hub.publish(ctx, m.Reply, s.log.snapshot(readRequest(m)))
	}
}
