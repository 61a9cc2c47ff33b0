package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newLog() *frameLog { return &frameLog{gen: 3, runID: "r", msgUIDs: []string{"m"}} }

func kind(k runv1.FrameKind) *runv1.Frame { return &runv1.Frame{Kind: k} }

func texts(frames []*runv1.Frame) (all string) {
	for _, f := range frames {
		all += f.GetText()
	}
	return all
}

func TestLog_FirstTokenGoesAtOnceAndLaterOnesShareFrames(t *testing.T) {
	t.Parallel()
	l := newLog()
	require.True(t, l.write(start, "a"))
	require.Equal(t, "a", texts(l.flush(start)))
	require.False(t, l.write(start.Add(10*time.Millisecond), "b"))
	require.False(t, l.write(start.Add(29*time.Millisecond), "c"))
	require.True(t, l.due(start.Add(30*time.Millisecond)))
	frames := l.flush(start.Add(30 * time.Millisecond))
	require.Len(t, frames, 1)
	require.Equal(t, "bc", frames[0].GetText())
	require.Equal(t, int64(2), frames[0].GetN())
	require.Equal(t, int64(3), frames[0].GetGen())
	require.Empty(t, l.flush(start.Add(time.Second)), "nothing is pending")
}

func TestLog_PendingTextGoesBeforeTheNextFrame(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.write(start, "a")
	l.flush(start)
	l.write(start, "b")
	frames := l.add(start, kind(runv1.FrameKind_FRAME_KIND_STEP))
	require.Equal(t, []runv1.FrameKind{runv1.FrameKind_FRAME_KIND_TEXT, runv1.FrameKind_FRAME_KIND_STEP},
		[]runv1.FrameKind{frames[0].GetKind(), frames[1].GetKind()})
	require.Equal(t, []int64{2, 3}, []int64{frames[0].GetN(), frames[1].GetN()})
}

func TestLog_SnapshotIsTheSuffixWhereItIsKnown(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.add(start, kind(runv1.FrameKind_FRAME_KIND_START))
	for _, s := range []string{"a", "b", "c"} {
		l.write(start, s)
		l.flush(start)
	}
	for n, want := range map[int64]string{1: "abc", 2: "bc", 3: "c", 4: ""} {
		reply := l.snapshot(3, n)
		require.False(t, reply.GetReset_())
		require.Equal(t, want, texts(reply.GetFrames()))
	}
	for _, other := range [][2]int64{{3, 0}, {3, 5}, {2, 2}, {4, 2}} {
		reply := l.snapshot(other[0], other[1])
		require.True(t, reply.GetReset_())
		require.Equal(t, "abc", texts(reply.GetFrames()))
		require.Equal(t, int64(4), reply.GetFrames()[len(reply.GetFrames())-1].GetN())
	}
}

func TestLog_WholeTellsOpenToolsAndOnlyTheTextSinceTheLastStep(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.add(start, kind(runv1.FrameKind_FRAME_KIND_START))
	l.write(start, "preamble")
	l.add(start, kind(runv1.FrameKind_FRAME_KIND_STEP))
	for _, id := range []string{"1", "2"} {
		l.add(start, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_TOOL_STARTED, CallId: id})
	}
	l.add(start, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_TOOL_FINISHED, CallId: "1"})
	frames := l.snapshot(0, 0).GetFrames()
	require.Len(t, frames, 3)
	require.Equal(t, "2", frames[1].GetCallId())
	require.Empty(t, frames[2].GetText())
	require.Equal(t, int64(6), frames[2].GetN())
}

func TestLog_WholeEndsWithTheEnd(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.add(start, kind(runv1.FrameKind_FRAME_KIND_START))
	l.write(start, "a")
	l.add(start, &runv1.Frame{Kind: runv1.FrameKind_FRAME_KIND_END, Outcome: "done"})
	frames := l.snapshot(0, 0).GetFrames()
	require.Len(t, frames, 3)
	require.Equal(t, "a", frames[1].GetText())
	require.Equal(t, []int64{1, 2, 3}, []int64{frames[0].GetN(), frames[1].GetN(), frames[2].GetN()})
	require.Equal(t, "done", frames[2].GetOutcome())
}

func TestLog_KeepsABoundedTail(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.add(start, kind(runv1.FrameKind_FRAME_KIND_START))
	for range 2 * keptFrames {
		l.write(start, "x")
		l.flush(start)
	}
	require.Len(t, l.kept, keptFrames)
	require.True(t, l.snapshot(3, 5).GetReset_(), "too long ago")
	require.Equal(t, strings.Repeat("x", 2*keptFrames), texts(l.snapshot(3, 5).GetFrames()))
	require.False(t, l.snapshot(3, l.n-keptFrames).GetReset_())

	l.write(start, strings.Repeat("y", keptBytes+1))
	l.flush(start)
	require.Empty(t, l.kept)
	require.Zero(t, l.bytes)
	require.True(t, l.snapshot(3, l.n-1).GetReset_())
	require.False(t, l.snapshot(3, l.n).GetReset_(), "nothing was missed")
}
