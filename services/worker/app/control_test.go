package app_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// slowHistory is a store whose first read of the history lasts until it is given up.
type slowHistory struct {
	store.Store
	first   sync.Once
	loading chan struct{}
}

func (s *slowHistory) History(ctx context.Context, skey string, id uuid.UUID, limit int) ([]store.Message, error) {
	waits := false
	s.first.Do(func() { waits = true })
	if waits {
		close(s.loading)
		<-ctx.Done()
		return nil, fmt.Errorf("read history: %w", store.ErrUnavailable)
	}
	return s.Store.History(ctx, skey, id, limit)
}

func startLoading(t *testing.T) (*bench, *slowHistory) {
	t.Helper()
	b := newBench(t, &script{answer: echo})
	s := &slowHistory{Store: b.mem, loading: make(chan struct{})}
	b.backends.Store = s
	return b, s
}

func TestRTR05_StopWhileTheHistoryIsLoadedAsksNoModel(t *testing.T) {
	t.Parallel()
	b, s := startLoading(t)
	b.start(t)
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	receive(t, s.loading)
	b.stopRun(t, c, "s1")
	require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State)
	require.Empty(t, b.model.calls(), "llm_calls_m1")
	require.Equal(t, []string{notice(inbox.StoppedText(0, 0))}, b.replies(t, m1.RunID), "one confirmation")
	require.Eventually(t, func() bool { return !b.redis.Exists("l:{" + c.skey + "}") }, patience, time.Millisecond)
	require.Equal(t, store.Idle, b.session(t, c).State)

	m2 := b.send(t, c, "m2", "two")
	require.Equal(t, store.RunDone, b.ended(t, m2.RunID).State)
	require.Equal(t, []string{"re: two"}, b.replies(t, m2.RunID))
	require.Equal(t, int64(2), b.session(t, c).OutSeq)
}

// sleeper answers its first call after a minute, unless its context ends; later ones are echoed.
func sleeper(started chan<- struct{}) *script {
	return &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n > 0 {
			return echo(ctx, n, req, say)
		}
		close(started)
		select {
		case <-time.After(time.Minute):
			return text("overslept"), nil
		case <-ctx.Done():
			return llm.Response{}, context.Cause(ctx)
		}
	}}
}

func TestRTR06_StopAbortsAMinuteLongCallAndTheWaitingMessagesComeNext(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := startBench(t, sleeper(started))
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	receive(t, started)
	b.admit(t, c.row("m2", "two"), c.row("m3", "three"))
	b.stopRun(t, c, "s1")
	require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State, "long before the call would have ended")
	require.Equal(t, []string{notice(inbox.StoppedText(2, 0))}, b.replies(t, m1.RunID), "it tells how many wait")
	b.idle(t, c)
	var asked []string
	for _, req := range b.model.calls() {
		asked = append(asked, req.Messages[len(req.Messages)-1].Text)
	}
	require.Equal(t, []string{"one", "two", "three"}, asked, "a stop is no prompt")
}

func TestRTR06_StopAllDropsWhatWaits(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := startBench(t, sleeper(started))
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	receive(t, started)
	stop := b.admit(t, c.row("m2", "two"), c.row("m3", "three"), c.stopAllRow("s1"), c.row("m4", "four"))[2]
	b.signal(t, c, &runv1.Control{
		Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: stop.Seq, Gen: stop.Gen, RunId: stop.StopRun.String(),
	})
	run := b.ended(t, m1.RunID)
	require.Equal(t, store.RunCancelled, run.State)
	require.Equal(t, []int64{1, 4}, []int64{run.FromSeq, run.ToSeq}, "the run covers what was dropped")
	require.Equal(t, []string{notice(inbox.StoppedText(1, 2))}, b.replies(t, m1.RunID))
	b.idle(t, c)
	require.Len(t, b.model.calls(), 2)
	sub, err := b.mem.Submission(t.Context(), c.skey, "m4")
	require.NoError(t, err)
	require.Equal(t, []string{"re: four"}, b.replies(t, sub.Run.ID), "what came after the stop is answered")
}

func TestRTR07_StopOfARunThatHasEndedLeavesTheNextOneAlone(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			return echo(ctx, n, req, say)
		}
		close(started)
		<-ctx.Done()
		return llm.Response{}, context.Cause(ctx)
	}})
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	require.Equal(t, store.RunDone, b.ended(t, m1.RunID).State)
	m2 := b.send(t, c, "m2", "two")
	receive(t, started)
	// The stop was resolved to run 1 while it was active; it is sent only now, under whatever generation it saw.
	for _, gen := range []int64{0, m1.Gen, m2.Gen, m2.Gen + 1} {
		b.signal(t, c, &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_STOP, Gen: gen, RunId: m1.RunID.String()})
	}
	require.Equal(t, store.Running, b.session(t, c).State)
	require.Equal(t, store.RunDone, b.ended(t, m1.RunID).State, "it keeps its terminal state")
	require.Equal(t, []string{"re: one"}, b.replies(t, m1.RunID))

	// The signals go through one channel: the second stop is seen after those of the first.
	b.stopRun(t, c, "s2")
	require.Equal(t, store.RunCancelled, b.ended(t, m2.RunID).State)
	run, err := b.mem.Run(t.Context(), m1.RunID)
	require.NoError(t, err)
	require.Equal(t, store.RunDone, run.State)
	require.Equal(t, []string{notice(inbox.StoppedText(0, 0))}, b.replies(t, m2.RunID))
}

func TestStop_WhoseSignalNeverComesEndsALongCall(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := startBench(t, sleeper(started))
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	receive(t, started)
	b.admit(t, c.row("s1", "/stop", stopRow))
	require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State)
	require.Equal(t, []string{notice(inbox.StoppedText(0, 0))}, b.replies(t, m1.RunID))
}

func TestStop_DoesNotWaitForAToolThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: func(context.Context, int, llm.Request, func(string)) (llm.Response, error) {
		return call("send", `{}`), nil
	}})
	started, released := make(chan struct{}), make(chan struct{})
	b.tools.execute = func(context.Context, tool.Request) (tool.Result, error) {
		close(started)
		<-released
		return tool.Result{Outcome: tool.OK, Content: "sent after all"}, nil
	}
	b.start(t)
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "send it")
	receive(t, started)
	b.stopRun(t, c, "s1")
	require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State)
	said := b.said(t, m1.RunID)
	require.Equal(t, []string{
		"user: send it", "assistant: [send]", "tool: outcome unknown: the action may have happened; verify before repeating",
	}, said)
	close(released)
	b.stop(t, time.Minute) // waits for the tool, too
	require.Equal(t, said, b.said(t, m1.RunID), "the late result is dropped")
	require.Equal(t, int64(1), b.session(t, c).OutSeq)
}

func TestReset_FencesTheRunAndTheNextMessageBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, signalled := range map[string]bool{"signal": true, "lost signal": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan struct{})
			b := startBench(t, talker(started))
			c := newChat(webhook, "a")
			m1 := b.send(t, c, "m1", "one")
			receive(t, started)
			reset := b.admit(t, c.row("n1", "/new", resetRow))[0]
			require.Equal(t, m1.RunID, reset.Fenced)
			if signalled {
				b.signal(t, c, &runv1.Control{
					Kind: runv1.ControlKind_CONTROL_KIND_FENCED, Seq: reset.Seq, Gen: reset.Gen, RunId: m1.RunID.String(),
				})
			}
			before := b.session(t, c)
			require.Eventually(t, func() bool { return !b.redis.Exists("l:{" + c.skey + "}") }, patience, time.Millisecond)
			require.Equal(t, before, b.session(t, c), "the old run writes nothing")
			require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State)
			require.Empty(t, b.said(t, m1.RunID))
			require.Empty(t, b.replies(t, m1.RunID))

			m2 := b.send(t, c, "m2", "two")
			require.Equal(t, store.RunDone, b.ended(t, m2.RunID).State)
			calls := b.model.calls()
			require.Equal(t, []llm.Message{{Role: llm.User, Text: "two"}}, calls[len(calls)-1].Messages)
		})
	}
}
