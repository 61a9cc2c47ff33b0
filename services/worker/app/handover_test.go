package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// soon is a share of a minute: runs that do not end at once are handed over wherever they are, and have time to do it.
const soon = 0.005

// requireHandedOver checks that a run went through two workers and left one answer.
func (b *bench) requireHandedOver(t *testing.T, c chat, first store.Admitted, answer string) {
	t.Helper()
	run := b.ended(t, first.RunID)
	require.Equal(t, store.RunDone, run.State)
	require.True(t, strings.HasPrefix(run.Owner, "worker-2/"), run.Owner)
	require.Equal(t, 2, run.Attempts)
	require.Equal(t, []int64{first.Gen, first.Gen + 1}, []int64{run.FirstGen, run.LastGen}, "the same run, one generation on")
	require.Equal(t, []string{answer}, b.replies(t, first.RunID))
	require.Equal(t, int64(1), b.session(t, c).OutSeq, "the answer comes once")
	require.Zero(t, b.session(t, c).Attempt, "a handover is no failed attempt")
}

func TestENG09_ALongModelCallIsHandedOver(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := newBench(t, talker(started))
	b.drainSoft = soon
	b.start(t)
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "hi")
	receive(t, started)
	b.admit(t, c.row("m2", "later"))
	b.stop(t, time.Minute)
	s := b.session(t, c)
	require.Equal(t, store.Queued, s.State)
	require.Equal(t, []any{m1.RunID, m1.Gen + 1, ""}, []any{s.RunID, s.Gen, s.Owner})
	require.False(t, b.redis.Exists("l:{"+c.skey+"}"), "nobody waits for a lease to expire")
	require.Equal(t, []string{"user: hi"}, b.said(t, m1.RunID), "who goes on says it anew")
	events := b.lifecycle(t, m1.RunID, event.RunHandedOver)
	require.Equal(t, m1.Gen, events[len(events)-1].Gen)

	b.second(t)
	run := b.ended(t, m1.RunID)
	require.Equal(t, []any{store.RunDone, 2}, []any{run.State, run.Attempts})
	require.Equal(t, []int64{1, 1}, []int64{run.FromSeq, run.ToSeq}, "the rows of the prompt are kept")
	require.Equal(t, []string{"user: hi", "assistant: re: hi"}, b.said(t, m1.RunID))
	require.Equal(t, []string{"re: hi"}, b.replies(t, m1.RunID))
	b.idle(t, c)
	sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
	require.NoError(t, err)
	require.Equal(t, []string{"re: later"}, b.replies(t, sub.Run.ID))
	require.Equal(t, int64(2), b.session(t, c).OutSeq)
}

func TestENG09_ARunLeavesBetweenTwoStepsWithItsResults(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			return call("send", `{}`), nil
		}
		return lastOf(ctx, n, req, say)
	}})
	started, held := make(chan struct{}), make(chan struct{})
	b.tools.execute = func(context.Context, tool.Request) (tool.Result, error) {
		close(started)
		<-held
		return tool.Result{Outcome: tool.OK, Content: "sent"}, nil
	}
	b.start(t)
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "send it")
	receive(t, started)
	b.second(t)
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // no run is cancelled
		defer cancel()
		stopped <- b.app.Stop(ctx)
	}()
	require.Eventually(t, func() bool { return b.mem.Beats()[0].Draining }, patience, time.Millisecond)
	close(held)
	require.NoError(t, receive(t, stopped))
	b.requireHandedOver(t, c, m1, "I see: sent")
	require.Len(t, b.tools.calls(), 1)
	require.Equal(t, []string{"user: send it", "assistant: [send]", "tool: sent", "assistant: I see: sent"}, b.said(t, m1.RunID))
}

func TestENG09_AStepIsHandedOverWithItsOpenCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tool   string
		calls  int
		result string
	}{
		"read is executed again":            {"look", 2, "found"},
		"unsafe may have happened, is told": {"send", 1, "outcome unknown: the action may have happened; verify before repeating"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
				if n == 0 {
					return call(c.tool, `{}`), nil
				}
				return lastOf(ctx, n, req, say)
			}})
			b.drainSoft = soon
			started := make(chan struct{}, 2)
			b.tools.execute = func(ctx context.Context, _ tool.Request) (tool.Result, error) {
				started <- struct{}{}
				if len(b.tools.calls()) == 2 {
					return tool.Result{Outcome: tool.OK, Content: "found"}, nil
				}
				<-ctx.Done()
				return tool.Result{}, context.Cause(ctx)
			}
			b.start(t)
			s := newChat(webhook, "a")
			m1 := b.send(t, s, "m1", "do it")
			receive(t, started)
			b.second(t)
			b.stop(t, time.Minute)
			b.requireHandedOver(t, s, m1, "I see: "+c.result)
			require.Len(t, b.tools.calls(), c.calls)
			for _, req := range b.tools.calls() {
				require.Equal(t, m1.RunID.String()+":call-1", req.IdemKey)
			}
			require.Equal(t, []string{
				"user: do it", "assistant: [" + c.tool + "]", "tool: " + c.result, "assistant: I see: " + c.result,
			}, b.said(t, m1.RunID))
		})
	}
}

func TestENG09_ARunThatHasNotBegunChoosesItsMessagesAnew(t *testing.T) {
	t.Parallel()
	b, s := startLoading(t)
	b.drainSoft = soon
	b.start(t)
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	receive(t, s.loading)
	b.stop(t, time.Minute)
	require.Empty(t, b.said(t, m1.RunID))
	require.Empty(t, b.model.calls())
	b.second(t)
	b.requireHandedOver(t, c, m1, "re: one")
}

func TestENG09_AStoppedRunThatIsHandedOverIsEndedByTheNextWorker(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := newBench(t, talker(started))
	b.drainSoft = soon
	b.start(t)
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "hi")
	receive(t, started)
	b.stop(t, time.Minute)
	b.admit(t, c.row("s1", "/stop", stopRow))
	b.second(t)
	require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State)
	require.Len(t, b.model.calls(), 1)
}

// noHandover is a store that does not answer handovers.
type noHandover struct{ store.Store }

func (noHandover) Handover(context.Context, []store.Checkpoint) ([]store.HandoverResult, error) {
	return nil, store.ErrUnavailable
}

func TestDrain_ARunThatCannotBeHandedOverIsLeftToTheSweeper(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := newBench(t, talker(started))
	b.drainSoft, b.drainHard = soon, 2*soon
	b.backends.Store = noHandover{b.mem}
	b.start(t)
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "hi")
	receive(t, started)
	b.stop(t, time.Minute)
	require.Equal(t, store.Running, b.session(t, c).State)
	require.Empty(t, b.said(t, m1.RunID))
	require.False(t, b.redis.Exists("l:{"+c.skey+"}"), "at once, since the lease is free")
	worker, err := b.bus.Work(t.Context(), bus.RunQueue(config.DefaultPool))
	require.NoError(t, err)
	works, err := worker.Fetch(t.Context(), 1, 10*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, works, "nothing is rung that nobody may claim")
}

func TestENG09_TheStreamStartsOverUnderTheHigherGeneration(t *testing.T) {
	t.Parallel()
	pieces := make(chan string)
	b := newBench(t, &script{answer: func(ctx context.Context, n int, _ llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			say("Once upon")
			<-ctx.Done()
			return llm.Response{}, context.Cause(ctx)
		}
		say("There was")
		say(<-pieces)
		return text("There was a time"), nil
	}})
	b.drainSoft = soon
	b.start(t)
	c := newChat(event.PlatformAPI, "a")
	frames := b.frames(t, c)
	m1 := b.send(t, c, "m1", "tell")
	require.Equal(t, runv1.FrameKind_FRAME_KIND_START, nextFrame(t, frames).GetKind())
	seen := nextFrame(t, frames)
	require.Equal(t, "Once upon", seen.GetText())
	b.second(t)
	b.stop(t, time.Minute)

	start := nextFrame(t, frames)
	require.Equal(t, runv1.FrameKind_FRAME_KIND_START, start.GetKind(), "no end before it: the run goes on")
	require.Equal(t, []int64{m1.Gen + 1, 1}, []int64{start.GetGen(), start.GetN()})
	require.Equal(t, []string{"m1"}, start.GetMsgUids())
	require.Equal(t, m1.RunID.String(), start.GetRunId())
	require.Equal(t, "There was", nextFrame(t, frames).GetText())

	// A client that has seen the first attempt is told to forget it.
	snapshot := b.snapshot(t, c, seen.GetGen(), seen.GetN())
	require.True(t, snapshot.GetReset_())
	last := snapshot.GetFrames()[len(snapshot.GetFrames())-1]
	require.Equal(t, []any{m1.Gen + 1, "There was"}, []any{last.GetGen(), last.GetText()})

	pieces <- " a time"
	require.Equal(t, " a time", nextFrame(t, frames).GetText())
	end := nextFrame(t, frames)
	require.Equal(t, []any{runv1.FrameKind_FRAME_KIND_END, "done", m1.Gen + 1}, []any{end.GetKind(), end.GetOutcome(), end.GetGen()})
	require.Equal(t, []string{"There was a time"}, b.replies(t, m1.RunID))
}
