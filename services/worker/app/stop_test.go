package app_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// notice is how bench.replies shows a notice.
func notice(text string) string { return "[" + text + "]" }

// talker says something in its first call and then waits for the end of its context; later calls are echoed.
func talker(started chan<- struct{}) *script {
	return &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n > 0 {
			return echo(ctx, n, req, say)
		}
		say("As far as I ")
		say("know")
		close(started)
		<-ctx.Done()
		return llm.Response{}, context.Cause(ctx)
	}}
}

func TestRTR06_StopEndsTheRunWithWhatItHasSaidAndConfirms(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := startBench(t, talker(started))
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "long question")
	receive(t, started)
	b.admit(t, c.row("m2", "two"), c.row("m3", "three"))
	b.stopRun(t, c, "s1")

	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunCancelled, run.State)
	require.Equal(t, []int64{1, 1}, []int64{run.FromSeq, run.ToSeq})
	require.Equal(t, []string{
		"As far as I know", notice(inbox.StoppedText(2, 0)),
	}, b.replies(t, a.RunID))
	require.Equal(t, []string{"user: long question", "assistant: As far as I know"}, b.said(t, a.RunID))

	b.idle(t, c)
	for _, uid := range []string{"m2", "m3"} {
		sub, err := b.mem.Submission(t.Context(), c.skey, uid)
		require.NoError(t, err)
		require.Equal(t, store.RunDone, sub.Run.State, "waiting messages stay")
	}
	b.doorbells(t, webhook, 4)
}

func TestRTR05_StopBeforeTheClaimAsksNoModel(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	admitted := b.admit(t, c.row("m1", "one"), c.row("s1", "/stop", stopRow), c.row("m2", "two"))
	b.ring(t, c, admitted[0], 0)
	run := b.ended(t, admitted[0].RunID)
	require.Equal(t, store.RunCancelled, run.State)
	require.Equal(t, []int64{1, 1}, []int64{run.FromSeq, run.ToSeq})
	require.Equal(t, []string{notice(inbox.StoppedText(1, 0))}, b.replies(t, run.ID))
	require.Equal(t, []string{"user: one"}, b.said(t, run.ID))

	b.idle(t, c)
	require.Len(t, b.model.calls(), 1)
	sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
	require.NoError(t, err)
	require.Equal(t, []int64{2, 3}, []int64{sub.Run.FromSeq, sub.Run.ToSeq}, "the stop is covered by the run behind it")
}

func TestStop_WhoseSignalIsLostIsSeenByTheNextCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: func(_ context.Context, _ int, _ llm.Request, _ func(string)) (llm.Response, error) {
		return call("send", `{}`), nil
	}})
	c := newChat(webhook, "a")
	b.tools.execute = func(context.Context, tool.Request) (tool.Result, error) {
		b.admit(t, c.row("s1", "/stop", stopRow))
		return tool.Result{Outcome: tool.OK, Content: "sent"}, nil
	}
	b.start(t)
	a := b.send(t, c, "m1", "hi")
	require.Equal(t, store.RunCancelled, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"user: hi", "assistant: [send]", "tool: sent"}, b.said(t, a.RunID))
	require.Equal(t, []string{notice(inbox.StoppedText(0, 0))}, b.replies(t, a.RunID))
	require.Len(t, b.model.calls(), 1)
	require.Len(t, b.tools.calls(), 1)
}

func TestStop_WhoseSignalIsLostIsSeenByTheFinish(t *testing.T) {
	t.Parallel()
	var b *bench
	c := newChat(webhook, "a")
	b = newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		b.admit(t, c.row("s1", "/stop", stopRow))
		return echo(ctx, n, req, say)
	}})
	b.start(t)
	a := b.send(t, c, "m1", "hi")
	require.Equal(t, store.RunCancelled, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"re: hi", notice(inbox.StoppedText(0, 0))}, b.replies(t, a.RunID))
}

func TestStop_OfAnotherRunIsIgnored(t *testing.T) {
	t.Parallel()
	started, held := make(chan struct{}, 2), make(chan struct{})
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		started <- struct{}{}
		select {
		case <-held:
		case <-ctx.Done():
			return llm.Response{}, context.Cause(ctx)
		}
		return echo(ctx, n, req, say)
	}})
	c, other := newChat(webhook, "a"), newChat(webhook, "b")
	a, stopped := b.send(t, c, "m1", "hi"), b.send(t, other, "m1", "ho")
	receive(t, started)
	receive(t, started)
	stop := runv1.ControlKind_CONTROL_KIND_STOP
	b.signal(t, c, &runv1.Control{Kind: stop, Gen: a.Gen, RunId: newID().String()})
	b.signal(t, c, &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_FENCED, Gen: a.Gen, RunId: a.RunID.String()})
	b.signal(t, c, &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_WAKE, Gen: a.Gen, RunId: a.RunID.String()})
	// All signals go through one channel: when the stop behind them has worked, they have been seen.
	b.stopRun(t, other, "s1")
	require.Equal(t, store.RunCancelled, b.ended(t, stopped.RunID).State)
	close(held)
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
}

func TestFence_SignalEndsTheRunAndWritesNothing(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := startBench(t, talker(started))
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	receive(t, started)
	before := b.session(t, c)
	b.signal(t, c, &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_FENCED, Gen: a.Gen + 1})
	require.Eventually(t, func() bool { return !b.redis.Exists("l:{" + c.skey + "}") }, patience, time.Millisecond)
	require.Equal(t, before, b.session(t, c), "no cleanup of any kind")
	require.Empty(t, b.said(t, a.RunID))
	require.Empty(t, b.replies(t, a.RunID))
}

func TestFence_AWriteInOtherHandsIsDiscarded(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]llm.Response{"finish": text("too late"), "checkpoint": call("send", `{}`)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started, held := make(chan struct{}), make(chan struct{})
			b := startBench(t, &script{answer: func(context.Context, int, llm.Request, func(string)) (llm.Response, error) {
				close(started)
				<-held
				return reply, nil
			}})
			c := newChat(webhook, "a")
			a := b.send(t, c, "m1", "hi")
			receive(t, started)
			// Somebody ends the run under the same owner, as the sweeper or an operator would with a higher generation.
			s := b.session(t, c)
			results, err := b.mem.Finish(t.Context(), []store.Finish{{
				Fence:  store.Fence{SKey: c.skey, Gen: s.Gen, RunID: s.RunID, Owner: s.Owner},
				RunGen: s.Gen, From: 1, To: 1, State: store.RunFailed, NextRunID: newID(),
			}})
			require.NoError(t, err)
			require.Equal(t, store.Finished, results[0].Outcome)
			close(held)
			require.Eventually(t, func() bool { return !b.redis.Exists("l:{" + c.skey + "}") }, patience, time.Millisecond)
			require.Empty(t, b.said(t, a.RunID))
			require.Empty(t, b.replies(t, a.RunID))
			require.Empty(t, b.tools.calls(), "a tool needs its intent")
			require.Equal(t, int64(0), b.session(t, c).OutSeq)
		})
	}
}

func TestWorker_RunsOnWhileRedisForgetsAndFails(t *testing.T) {
	t.Parallel()
	started, held := make(chan struct{}), make(chan struct{})
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		close(started)
		<-held
		return echo(ctx, n, req, say)
	}})
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	receive(t, started)
	l, err := b.leases.Lookup(t.Context(), []string{c.skey})
	require.NoError(t, err)
	require.Equal(t, []any{a.Gen, a.RunID.String()}, []any{l[0].Gen, l[0].RunID})
	require.Equal(t, b.session(t, c).Owner, l[0].Holder, "lease and row name one owner")
	require.Positive(t, b.redis.TTL("l:{"+c.skey+"}"))
	require.LessOrEqual(t, b.redis.TTL("l:{"+c.skey+"}"), lease.TTL)
	b.redis.Close()
	close(held)
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	b.lifecycle(t, a.RunID, event.RunFinished)
}
