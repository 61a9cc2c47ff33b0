package app_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// asker asks whether to go on and answers with what it is told.
func asker(arguments string) *script {
	return &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if req.Messages[len(req.Messages)-1].Text == "do it" {
			return call(agent.AskUser, arguments), nil
		}
		return echo(ctx, n, req, say)
	}}
}

const sendIt = `{"question":"Send it?","options":["yes","no"]}`

// approval is the admission of an answer.
func (c chat) approval(uid string, change func(*event.Message)) store.AdmitMessage {
	m := c.message(uid, "")
	change(m)
	body, err := json.Marshal(m)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return c.row(uid, "", func(row *store.AdmitMessage) {
		row.Kind, row.WantsRun, row.Wakes, row.Body = store.KindApproval, false, true, body
	})
}

func press(data string) func(*event.Message) {
	return func(m *event.Message) { m.Kind, m.Text = event.KindAction, data }
}

func command(name, args string) func(*event.Message) {
	return func(m *event.Message) {
		m.Kind, m.Command = event.KindCommand, &event.Command{Name: name, Args: args}
	}
}

// waiting waits until the session waits for an answer.
func (b *bench) waiting(t *testing.T, c chat) store.Session {
	t.Helper()
	var s store.Session
	await.True(t, patience, func() bool {
		var err error
		s, err = b.mem.Session(t.Context(), c.skey)
		return err == nil && s.State == store.Waiting
	}, "session does not wait")
	return s
}

// answer admits an answer and rings, as the router does.
func (b *bench) answer(t *testing.T, c chat, row store.AdmitMessage) {
	t.Helper()
	b.ring(t, c, b.admit(t, row)[0], 0)
}

// question returns the parts of the reply with a number.
func (b *bench) question(t *testing.T, id uuid.UUID, n int) (store.Reply, channel.Part) {
	t.Helper()
	replies, err := b.mem.RunReplies(t.Context(), id)
	require.NoError(t, err)
	require.Greater(t, len(replies), n)
	var parts []channel.Part
	require.NoError(t, json.Unmarshal(replies[n].Parts, &parts))
	require.Len(t, parts, 1)
	return replies[n], parts[0]
}

func TestAsk_SuspendsTheRunAndFreesItsSlot(t *testing.T) {
	t.Parallel()
	b := newBench(t, asker(sendIt))
	b.cfg.Worker.Slots = 1
	b.start(t)
	c := newChat(webhook, "a")
	before := time.Now()
	a := b.send(t, c, "m1", "do it")
	s := b.waiting(t, c)
	require.Equal(t, []any{a.RunID, a.Gen + 1, "", store.WaitQuestion}, []any{s.RunID, s.Gen, s.Owner, s.WaitKind})
	require.WithinRange(t, s.WakeAt, before.Add(24*time.Hour-time.Minute), time.Now().Add(24*time.Hour))
	reply, part := b.question(t, a.RunID, 0)
	require.Equal(t, a.RunID.String()+":call-1", reply.DKey)
	require.Equal(t, "Send it?", part.Markdown)
	require.False(t, part.Notice)
	require.Equal(t, []string{"yes", "no"}, []string{part.Actions[0].Label, part.Actions[1].Label})
	require.Equal(t, "call-1", part.Actions[1].CallID)
	require.LessOrEqual(t, len(part.Actions[0].ID), 64, "what a button can carry")
	require.Equal(t, []string{"user: do it", "assistant: [ask_user]"}, b.said(t, a.RunID))
	events := b.lifecycle(t, a.RunID, event.ApprovalRequested)
	require.Equal(t, "call-1", events[len(events)-1].CallID)
	b.doorbells(t, webhook, 1)
	require.Eventually(t, func() bool { return !b.redis.Exists("l:{" + c.skey + "}") }, patience, time.Millisecond)
	other := b.send(t, newChat(webhook, "b"), "m1", "hi")
	require.Equal(t, store.RunDone, b.ended(t, other.RunID).State, "the slot is free")
}

func TestAsk_GoesOnWithTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*event.Message, channel.Part)
		want   string
	}{
		"button":                {func(m *event.Message, p channel.Part) { press(p.Actions[1].ID)(m) }, "no"},
		"approval":              {func(m *event.Message, _ channel.Part) { command("approve", "")(m) }, "approved"},
		"denial with a reason":  {func(m *event.Message, _ channel.Part) { command("deny", " too early ")(m) }, "denied: too early"},
		"words":                 {func(m *event.Message, _ channel.Part) { m.Text = "rather tomorrow" }, "rather tomorrow"},
		"words for this call":   {func(m *event.Message, _ channel.Part) { m.Text, m.CallID = "yes, please", "call-1" }, "yes, please"},
		"a press with its call": {func(m *event.Message, _ channel.Part) { press("sure")(m); m.CallID = "call-1" }, "sure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBench(t, asker(sendIt))
			c := newChat(webhook, "a")
			a := b.send(t, c, "m1", "do it")
			b.waiting(t, c)
			_, part := b.question(t, a.RunID, 0)
			b.answer(t, c, c.approval("p1", func(m *event.Message) { tc.change(m, part) }))
			run := b.ended(t, a.RunID)
			require.Equal(t, []any{store.RunDone, 2}, []any{run.State, run.Attempts})
			require.Equal(t, []int64{1, 2}, []int64{run.FromSeq, run.ToSeq}, "the answer is this run's")
			require.Equal(t, []string{
				"user: do it", "assistant: [ask_user]", "tool: " + tc.want, "assistant: re: " + tc.want,
			}, b.said(t, a.RunID))
			require.Equal(t, []string{"Send it?", "re: " + tc.want}, b.replies(t, a.RunID))
			require.Equal(t, store.Idle, b.session(t, c).State)
			events := b.lifecycle(t, a.RunID, event.ApprovalResolved)
			require.Equal(t, "ok", events[len(events)-1].Outcome)
		})
	}
}

func TestAsk_AnswersAfterTheWorkerHasBeenReplaced(t *testing.T) {
	t.Parallel()
	b := startBench(t, asker(sendIt))
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "do it")
	b.waiting(t, c)
	b.stop(t, time.Minute)
	b.second(t)
	b.answer(t, c, c.approval("p1", command("approve", "")))
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"Send it?", "re: approved"}, b.replies(t, a.RunID))
}

func TestAsk_PressOfAnotherQuestionIsNoAnswer(t *testing.T) {
	t.Parallel()
	b := startBench(t, asker(sendIt))
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "do it")
	s := b.waiting(t, c)
	b.answer(t, c, c.approval("p1", press("ask:0000000000000000:0")))
	again := s
	await.True(t, patience, func() bool {
		again = b.waiting(t, c)
		return again.Gen > s.Gen+1
	}, "it was not woken")
	require.Equal(t, s.WakeAt.Unix(), again.WakeAt.Unix(), "it waits no longer than before")
	b.answer(t, c, c.approval("p2", command("approve", "")))
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"Send it?", "re: approved"}, b.replies(t, a.RunID), "it is asked once")
	require.Equal(t, int64(2), b.session(t, c).OutSeq)
}

func TestAsk_GoesOnWithoutAnAnswerOnceItsTimeIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, asker(sendIt))
	b.clock = func() time.Time { return time.Now().Add(-48 * time.Hour) } // the question expires yesterday
	b.start(t)
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "do it")
	s := b.waiting(t, c)
	require.True(t, s.WakeAt.Before(time.Now()))
	b.stop(t, time.Minute)
	b.clock = nil
	b.second(t)
	woken, err := b.mem.WakeDue(t.Context(), []int{session.Partition(c.skey)}, []uuid.UUID{newID()})
	require.NoError(t, err)
	require.Len(t, woken, 1)
	b.ring(t, c, store.Admitted{Gen: woken[0].Gen, RunID: woken[0].RunID}, 0)
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"Send it?", "re: no answer came in time"}, b.replies(t, a.RunID))
}

func TestAsk_StopEndsARunThatWaits(t *testing.T) {
	t.Parallel()
	b := startBench(t, asker(sendIt))
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "do it")
	b.waiting(t, c)
	stop := b.admit(t, c.row("s1", "/stop", stopRow))[0]
	b.ring(t, c, stop, 0)
	require.Equal(t, store.RunCancelled, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"Send it?", notice(inbox.StoppedText(0, 0))}, b.replies(t, a.RunID))
	require.Len(t, b.model.calls(), 1)

	m2 := b.send(t, c, "m2", "and now?")
	require.Equal(t, store.RunDone, b.ended(t, m2.RunID).State, "the open question does not stand in the way")
}

// hasty is a store in which an answer is admitted right before the question is.
type hasty struct {
	store.Store
	once   sync.Once
	answer func()
}

func (h *hasty) Suspend(ctx context.Context, ss []store.Suspension) ([]store.SuspendResult, error) {
	h.once.Do(h.answer)
	return h.Store.Suspend(ctx, ss)
}

func TestAsk_AnswerThatMeetsTheQuestionIsNotMissed(t *testing.T) {
	t.Parallel()
	c := newChat(webhook, "a")
	b := newBench(t, asker(sendIt))
	b.backends.Store = &hasty{Store: b.mem, answer: func() { b.admit(t, c.approval("p1", command("approve", ""))) }}
	b.start(t)
	a := b.send(t, c, "m1", "do it")
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State, "nobody rings for it")
	require.Equal(t, []string{"Send it?", "re: approved"}, b.replies(t, a.RunID))
}

func TestAsk_AnApprovalOfSomethingElseIsNoAnswer(t *testing.T) {
	t.Parallel()
	c := newChat(webhook, "a")
	var b *bench
	b = newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			b.admit(t, c.approval("p1", command("approve", "")))
			return call(agent.AskUser, sendIt), nil
		}
		return echo(ctx, n, req, say)
	}})
	b.start(t)
	a := b.send(t, c, "m1", "do it")
	b.waiting(t, c)
	b.answer(t, c, c.approval("p2", command("deny", "")))
	run := b.ended(t, a.RunID)
	require.Equal(t, []string{"Send it?", "re: denied"}, b.replies(t, a.RunID), "the first one came before the question")
	require.Equal(t, []any{store.RunDone, int64(3)}, []any{run.State, run.ToSeq})
}

func TestAsk_ClientsSeeTheQuestionAndTheAnswer(t *testing.T) {
	t.Parallel()
	b := startBench(t, asker(sendIt))
	c := newChat(event.PlatformAPI, "a")
	frames := b.frames(t, c)
	a := b.send(t, c, "m1", "do it")
	b.waiting(t, c)
	b.answer(t, c, c.approval("p1", command("deny", "")))
	b.ended(t, a.RunID)
	var seen []runv1.FrameKind
	var gens []int64
	for f := nextFrame(t, frames); ; f = nextFrame(t, frames) {
		if f.GetKind() == runv1.FrameKind_FRAME_KIND_TOOL_PROGRESS {
			require.Equal(t, "Send it?", f.GetText())
		}
		seen, gens = append(seen, f.GetKind()), append(gens, f.GetGen())
		if f.GetKind() == runv1.FrameKind_FRAME_KIND_END {
			break
		}
	}
	require.Equal(t, []runv1.FrameKind{
		runv1.FrameKind_FRAME_KIND_START, runv1.FrameKind_FRAME_KIND_STEP, runv1.FrameKind_FRAME_KIND_TOOL_STARTED,
		runv1.FrameKind_FRAME_KIND_TOOL_PROGRESS,
		runv1.FrameKind_FRAME_KIND_START, runv1.FrameKind_FRAME_KIND_TOOL_FINISHED, runv1.FrameKind_FRAME_KIND_TEXT,
		runv1.FrameKind_FRAME_KIND_END,
	}, seen)
	require.Less(t, gens[0], gens[4], "the second half starts over")
}
