package app_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// storyteller says pieces as they come in, and ends with the channel.
func storyteller(pieces <-chan string) *script {
	return &script{answer: func(_ context.Context, _ int, _ llm.Request, say func(string)) (llm.Response, error) {
		var all strings.Builder
		for p := range pieces {
			say(p)
			all.WriteString(p)
		}
		return text(all.String()), nil
	}}
}

func (b *bench) frames(t *testing.T, c chat) <-chan bus.Msg {
	t.Helper()
	frames := make(chan bus.Msg, 256)
	_, err := b.bus.Listen(bus.DeltaSubject(c.skey), frames)
	require.NoError(t, err)
	return frames
}

func nextFrame(t *testing.T, frames <-chan bus.Msg) *runv1.Frame {
	t.Helper()
	var f runv1.Frame
	require.NoError(t, proto.Unmarshal(receive(t, frames).Data, &f))
	return &f
}

func (b *bench) snapshot(t *testing.T, c chat, gen, n int64) *runv1.SnapshotReply {
	t.Helper()
	data, err := proto.Marshal(&runv1.SnapshotRequest{Gen: gen, N: n})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := b.bus.Request(ctx, bus.Msg{Subject: bus.SnapshotSubject(c.skey), Data: data})
	require.NoError(t, err)
	var reply runv1.SnapshotReply
	require.NoError(t, proto.Unmarshal(answer.Data, &reply))
	return &reply
}

func TestStream_TellsAReaderEverythingInOrderAndEndsAfterTheCommit(t *testing.T) {
	t.Parallel()
	pieces := make(chan string)
	b := startBench(t, storyteller(pieces))
	c := newChat(event.PlatformAPI, "a")
	frames := b.frames(t, c)
	a := b.send(t, c, "m1", "tell")

	first := nextFrame(t, frames)
	require.Equal(t, runv1.FrameKind_FRAME_KIND_START, first.GetKind())
	require.Equal(t, []string{"m1"}, first.GetMsgUids())
	require.Equal(t, a.RunID.String(), first.GetRunId())
	require.Equal(t, []int64{a.Gen, 1}, []int64{first.GetGen(), first.GetN()})

	pieces <- "Once"
	begin := nextFrame(t, frames)
	require.Equal(t, runv1.FrameKind_FRAME_KIND_TEXT, begin.GetKind())
	require.Equal(t, "Once", begin.GetText(), "the first token goes at once")
	for _, p := range []string{" upon", " a", " time"} {
		pieces <- p
	}
	text, n := begin.GetText(), begin.GetN()
	for text != "Once upon a time" {
		f := nextFrame(t, frames)
		require.Equal(t, runv1.FrameKind_FRAME_KIND_TEXT, f.GetKind())
		require.Equal(t, n+1, f.GetN())
		text, n = text+f.GetText(), f.GetN()
	}
	require.Less(t, n, int64(5), "later tokens share frames")

	close(pieces)
	end := nextFrame(t, frames)
	require.Equal(t, runv1.FrameKind_FRAME_KIND_END, end.GetKind())
	require.Equal(t, []any{"done", n + 1}, []any{end.GetOutcome(), end.GetN()})
	run, err := b.mem.Run(t.Context(), a.RunID)
	require.NoError(t, err)
	require.Equal(t, store.RunDone, run.State, "the end comes after the commit")
}

func TestStream_ShowsStepsAndTools(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: func(_ context.Context, n int, _ llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			say("Let me look.")
			r := call("look", `{}`)
			r.Message.Text = "Let me look."
			return r, nil
		}
		say("Found.")
		return text("Found."), nil
	}})
	c := newChat(event.PlatformAPI, "a")
	frames := b.frames(t, c)
	b.send(t, c, "m1", "find")
	var kinds []runv1.FrameKind
	for {
		f := nextFrame(t, frames)
		kinds = append(kinds, f.GetKind())
		if f.GetKind() == runv1.FrameKind_FRAME_KIND_TOOL_FINISHED {
			require.Equal(t, []string{"look", "ok"}, []string{f.GetTool(), f.GetOutcome()})
		}
		if f.GetKind() == runv1.FrameKind_FRAME_KIND_END {
			break
		}
	}
	require.Equal(t, []runv1.FrameKind{
		runv1.FrameKind_FRAME_KIND_START, runv1.FrameKind_FRAME_KIND_TEXT, runv1.FrameKind_FRAME_KIND_STEP,
		runv1.FrameKind_FRAME_KIND_TOOL_STARTED, runv1.FrameKind_FRAME_KIND_TOOL_FINISHED,
		runv1.FrameKind_FRAME_KIND_TEXT, runv1.FrameKind_FRAME_KIND_END,
	}, kinds)
}

func TestStream_IsSilentUntilSomebodyAsksForASnapshot(t *testing.T) {
	t.Parallel()
	pieces := make(chan string)
	b := startBench(t, storyteller(pieces))
	c := newChat(webhook, "a")
	frames := b.frames(t, c)
	a := b.send(t, c, "m1", "tell")
	pieces <- "Once"
	pieces <- " upon"

	var whole *runv1.SnapshotReply
	require.Eventually(t, func() bool { // " upon" may still be on its way into the stream
		whole = b.snapshot(t, c, 0, 0)
		f := whole.GetFrames()
		return f[len(f)-1].GetText() == "Once upon"
	}, patience, time.Millisecond)
	require.True(t, whole.GetReset_())
	require.Equal(t, []string{"m1"}, whole.GetMsgUids())
	require.Equal(t, a.RunID.String(), whole.GetRunId())
	seen := whole.GetFrames()[len(whole.GetFrames())-1].GetN()

	pieces <- " a time"
	f := nextFrame(t, frames)
	for f.GetN() <= seen { // a frame of the text that the snapshot holds already
		f = nextFrame(t, frames)
	}
	require.Equal(t, " a time", f.GetText())

	missed := b.snapshot(t, c, a.Gen, seen)
	require.False(t, missed.GetReset_())
	require.Len(t, missed.GetFrames(), 1)
	require.Equal(t, " a time", missed.GetFrames()[0].GetText())
	require.True(t, b.snapshot(t, c, a.Gen-1, seen).GetReset_(), "another attempt starts over")

	close(pieces)
	require.Equal(t, runv1.FrameKind_FRAME_KIND_END, nextFrame(t, frames).GetKind())
}

func TestStream_NobodyLooks(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: func(_ context.Context, _ int, _ llm.Request, say func(string)) (llm.Response, error) {
		say("quiet")
		return text("quiet"), nil
	}})
	c := newChat(webhook, "a")
	frames := b.frames(t, c)
	a := b.send(t, c, "m1", "tell")
	b.lifecycle(t, a.RunID, event.RunFinished) // frames left before it, over the same connection
	require.Empty(t, frames)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := b.bus.Request(ctx, bus.Msg{Subject: bus.SnapshotSubject(c.skey)})
		return errors.Is(err, bus.ErrNoResponder)
	}, patience, time.Millisecond, "the run is over")
}
