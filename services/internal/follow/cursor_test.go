package follow

import (
	"testing"

	"github.com/stretchr/testify/require"

	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

func frame(gen, n int64, kind runv1.FrameKind, text string) *runv1.Frame {
	f := &runv1.Frame{Gen: gen, RunId: "r", N: n, Kind: kind, Text: text}
	if kind == runv1.FrameKind_FRAME_KIND_START {
		f.MsgUids = []string{"other", "u"}
	}
	return f
}

func start(gen int64) *runv1.Frame { return frame(gen, 1, runv1.FrameKind_FRAME_KIND_START, "") }
func text(gen, n int64, s string) *runv1.Frame {
	return frame(gen, n, runv1.FrameKind_FRAME_KIND_TEXT, s)
}

func whole(frames ...*runv1.Frame) *runv1.SnapshotReply {
	return &runv1.SnapshotReply{Reset_: true, RunId: "r", MsgUids: []string{"u"}, Frames: frames}
}

// kinds is what events are, without their content.
func kinds(events []Event) []Kind {
	var list []Kind
	for _, e := range events {
		list = append(list, e.Kind)
	}
	return list
}

func TestCursor_LearnsTheRunFromItsFirstFrameOnly(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	events, next := c.frame(text(5, 2, "of whom?"))
	require.Empty(t, events)
	require.Equal(t, goOn, next)
	require.True(t, c.lost())

	foreign := start(5)
	foreign.RunId, foreign.MsgUids = "s", []string{"other"}
	events, _ = c.frame(foreign)
	require.Empty(t, events)

	events, _ = c.frame(start(5))
	require.Equal(t, []Event{{Kind: RunStarted, RunID: "r", At: Position{5, 1}}}, events)
	require.False(t, c.lost())
}

func TestCursor_FollowsARunWithoutAMessage(t *testing.T) {
	t.Parallel()
	c := cursor{runID: "r"}
	foreign := start(5)
	foreign.RunId, foreign.MsgUids = "s", []string{""}
	events, _ := c.frame(foreign)
	require.Empty(t, events)
	events, _ = c.frame(start(5))
	require.Equal(t, []Kind{RunStarted}, kinds(events))
}

func TestCursor_AsksOncePerGap(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	c.frame(start(5))
	_, next := c.frame(text(5, 3, "c"))
	require.Equal(t, ask, next)
	events, next := c.frame(text(5, 4, "d"))
	require.Empty(t, events)
	require.Equal(t, goOn, next, "it has asked")
	require.True(t, c.lost())

	events, next = c.frame(text(5, 2, "b"))
	require.Equal(t, []Kind{Text}, kinds(events), "what is missing may come all the same")
	require.Equal(t, goOn, next)
	require.False(t, c.lost())
}

func TestCursor_AsksWhenTheStartOfAnAttemptIsMissing(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	c.frame(start(5))
	events, next := c.frame(text(6, 2, "new"))
	require.Empty(t, events)
	require.Equal(t, ask, next)
	events, next = c.snapshot(whole(start(6), text(6, 2, "new")))
	require.Equal(t, goOn, next)
	require.Equal(t, []Event{
		{Kind: Reset}, {Kind: RunStarted, RunID: "r"}, {Kind: Text, Text: "new", At: Position{6, 2}},
	}, events)
	events, next = c.frame(text(5, 9, "zombie"))
	require.Empty(t, events)
	require.Equal(t, goOn, next)
	require.False(t, c.lost())
}

func TestCursor_IgnoresTheSnapshotOfAReplacedAttempt(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	c.frame(start(6))
	events, _ := c.snapshot(whole(start(5), text(5, 9, "zombie")))
	require.Empty(t, events)
	require.Equal(t, Position{6, 1}, c.at)
}

func TestCursor_WholeWithoutTextPlacesItsLastEvent(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	events, _ := c.snapshot(whole(start(5), text(5, 4, "")))
	require.Equal(t, []Event{{Kind: RunStarted, RunID: "r", At: Position{5, 4}}}, events)
	events, _ = c.frame(text(5, 5, "x"))
	require.Equal(t, []Kind{Text}, kinds(events))
}

func TestCursor_EmptyAnswersChangeNothing(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	c.frame(start(5))
	for _, s := range []*runv1.SnapshotReply{nil, {}, whole(), {RunId: "s", Reset_: true, Frames: []*runv1.Frame{start(7)}}} {
		events, next := c.snapshot(s)
		require.Empty(t, events)
		require.Equal(t, goOn, next)
		require.Equal(t, Position{5, 1}, c.at)
	}
}

func TestCursor_LooksAtTheEnd(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	c.frame(start(5))
	rest := &runv1.SnapshotReply{RunId: "r", Frames: []*runv1.Frame{
		text(5, 2, "b"), frame(5, 3, runv1.FrameKind_FRAME_KIND_END, ""),
	}}
	events, next := c.snapshot(rest)
	require.Equal(t, []Kind{Text}, kinds(events))
	require.Equal(t, look, next)
}

func TestCursor_PassesOverFramesOfNewerWorkers(t *testing.T) {
	t.Parallel()
	c := cursor{uid: "u"}
	c.frame(start(5))
	events, next := c.frame(frame(5, 2, runv1.FrameKind(99), "?"))
	require.Empty(t, events)
	require.Equal(t, goOn, next)
	events, _ = c.frame(text(5, 3, "c"))
	require.Equal(t, []Kind{Text}, kinds(events))
}

func TestParsePosition(t *testing.T) {
	t.Parallel()
	require.Equal(t, Position{3, 4}, ParsePosition(Position{3, 4}.String()))
	for _, id := range []string{"", "3", "3:", ":4", "a:b", "3:4:5", "-3:4", "0:4", "3:0", "99999999999999999999:1"} {
		require.Equal(t, Position{}, ParsePosition(id), id)
	}
}
