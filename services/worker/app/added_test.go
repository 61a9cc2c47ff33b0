package app_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// addedText is how the model reads what was added to a running turn.
const addedText = "[the user added this while you were working]\n"

func steerRow(m *store.AdmitMessage) { m.Kind, m.Steer = store.KindSteer, true }

// steer adds a message to the running turn.
func (b *bench) steer(t *testing.T, c chat, uid, text string) store.Admitted {
	t.Helper()
	return b.admit(t, c.row(uid, text, steerRow))[0]
}

// worksOnce calls a tool and then answers with what came last.
func worksOnce(name string) *script {
	return &script{answer: func(ctx context.Context, _ int, req llm.Request, say func(string)) (llm.Response, error) {
		if req.Messages[len(req.Messages)-1].Text == "do it" {
			return call(name, `{}`), nil
		}
		return echo(ctx, 0, req, say)
	}}
}

func TestAdded_MessageJoinsTheRunningTurn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tool      string
		signalled bool
	}{
		"signal": {tool: "look", signalled: true},
		// The checkpoint of an unsafe call's result tells of it all the same.
		"lost signal": {tool: "send"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, worksOnce(tc.tool))
			c, other := newChat(webhook, "a"), newChat(webhook, "b")
			held := make(chan struct{})
			b.tools.execute = func(ctx context.Context, req tool.Request) (tool.Result, error) {
				if req.Session == other.skey {
					close(held)
					<-ctx.Done()
					return tool.Result{}, context.Cause(ctx)
				}
				a := b.steer(t, c, "m2", "and that")
				if tc.signalled {
					b.signal(t, c, &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_STEER, Seq: a.Seq, Gen: a.Gen})
					// Signals go through one channel: after this stop the one before has been seen.
					b.ended(t, b.stopRun(t, other, "s1").StopRun)
				}
				return tool.Result{Outcome: tool.OK, Content: "did it"}, nil
			}
			b.start(t)
			b.send(t, other, "o1", "do it")
			receive(t, held)
			m1 := b.send(t, c, "m1", "do it")
			run := b.ended(t, m1.RunID)
			require.Equal(t, []int64{1, 2}, []int64{run.FromSeq, run.ToSeq}, "the range ends behind what was taken")
			said := b.said(t, m1.RunID)
			require.Equal(t, []string{"tool: did it", "user: " + addedText + "and that"}, said[2:4])
			require.Equal(t, []string{"re: " + addedText + "and that"}, b.replies(t, m1.RunID), "one answer to both")
			require.Equal(t, store.Idle, b.session(t, c).State)
			require.Len(t, b.model.calls(), 3)
			sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
			require.NoError(t, err)
			require.Equal(t, m1.RunID, sub.Run.ID)
			events := b.lifecycle(t, m1.RunID, event.MessageMerged)
			require.Equal(t, "m2", events[len(events)-1].MsgUID)
		})
	}
}

func TestAdded_MessageBehindAWaitingOneLeavesTheRangeAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, worksOnce("send"))
	c := newChat(webhook, "a")
	b.tools.execute = func(context.Context, tool.Request) (tool.Result, error) {
		b.admit(t, c.row("m2", "later"), c.row("m3", "and that", steerRow))
		return tool.Result{Outcome: tool.OK, Content: "did it"}, nil
	}
	b.start(t)
	m1 := b.send(t, c, "m1", "do it")
	require.Equal(t, []string{"re: " + addedText + "and that"}, b.repliesOnce(t, m1))
	run := b.ended(t, m1.RunID)
	require.Equal(t, []int64{1, 1}, []int64{run.FromSeq, run.ToSeq})
	s := b.idle(t, c)
	require.Equal(t, int64(3), s.DoneSeq)
	sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
	require.NoError(t, err)
	require.Equal(t, []int64{2, 3}, []int64{sub.Run.FromSeq, sub.Run.ToSeq}, "and the range behind it skips what was taken")
	require.Equal(t, []string{"re: later"}, b.replies(t, sub.Run.ID))
	require.Len(t, b.model.calls(), 3)
}

// repliesOnce waits for the end of a run.
func (b *bench) repliesOnce(t *testing.T, a store.Admitted) []string {
	t.Helper()
	b.ended(t, a.RunID)
	return b.replies(t, a.RunID)
}

func TestAdded_MessageThatComesDuringTheAnswerIsTheNextTurn(t *testing.T) {
	t.Parallel()
	c := newChat(webhook, "a")
	var b *bench
	b = newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			b.steer(t, c, "m2", "too late")
		}
		return echo(ctx, n, req, say)
	}})
	b.start(t)
	m1 := b.send(t, c, "m1", "do it")
	require.Equal(t, []string{"re: do it"}, b.repliesOnce(t, m1))
	b.idle(t, c)
	sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
	require.NoError(t, err)
	require.NotEqual(t, m1.RunID, sub.Run.ID)
	require.Equal(t, []string{"re: too late"}, b.replies(t, sub.Run.ID), "a turn of its own is no addition")
}

func TestAdded_AStoppedRunTakesNothingMore(t *testing.T) {
	t.Parallel()
	b := newBench(t, worksOnce("send"))
	c := newChat(webhook, "a")
	b.tools.execute = func(context.Context, tool.Request) (tool.Result, error) {
		b.admit(t, c.row("m2", "and that", steerRow), c.row("s1", "/stop", stopRow))
		return tool.Result{Outcome: tool.OK, Content: "did it"}, nil
	}
	b.start(t)
	m1 := b.send(t, c, "m1", "do it")
	run := b.ended(t, m1.RunID)
	require.Equal(t, store.RunCancelled, run.State)
	require.Equal(t, []int64{1, 1}, []int64{run.FromSeq, run.ToSeq})
	require.Equal(t, []string{"user: do it", "assistant: [send]", "tool: did it"}, b.said(t, m1.RunID))
}
