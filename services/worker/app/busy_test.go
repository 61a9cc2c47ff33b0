package app_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// changed is the admission of a message that is not as plain as the others.
func (c chat) changed(uid, text string, change func(*event.Message)) store.AdmitMessage {
	m := c.message(uid, text)
	change(m)
	body, err := json.Marshal(m)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return c.row(uid, "", func(row *store.AdmitMessage) { row.Body = body })
}

func latest(m *event.Message) { m.BusyPolicy = event.PolicyLatest }

const supersededText = "[A newer message has replaced this one, so it gets no answer of its own.]"

func TestRTR02_OnlyTheNewestMessageIsAnsweredAndTheOthersAreTold(t *testing.T) {
	t.Parallel()
	started, held := make(chan struct{}), make(chan struct{})
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			close(started)
			<-held
		}
		return echo(ctx, n, req, say)
	}})
	c := newChat(webhook, "a")
	m1 := b.admit(t, c.changed("m1", "one", latest))[0]
	b.ring(t, c, m1, 0)
	receive(t, started)
	b.admit(t, c.changed("m2", "", func(m *event.Message) {
		latest(m)
		m.Attachments = []event.Attachment{{Kind: "image", Name: "a.png", Ref: "ref-a"}}
	}), c.changed("m3", "use this picture", latest), c.changed("m4", "no, crop it", latest))
	close(held)
	b.idle(t, c)

	require.Len(t, b.model.calls(), 2, "runs")
	sub, err := b.mem.Submission(t.Context(), c.skey, "m4")
	require.NoError(t, err)
	run := sub.Run
	require.Equal(t, []any{store.RunDone, int64(2), int64(4)}, []any{run.State, run.FromSeq, run.ToSeq})
	require.Equal(t, []string{
		"superseded: [image: a.png, ref: ref-a]", "superseded: use this picture",
		"user: no, crop it\n[image: a.png, ref: ref-a]", "assistant: re: no, crop it\n[image: a.png, ref: ref-a]",
	}, b.said(t, run.ID))
	require.Equal(t, []string{supersededText, supersededText, "re: no, crop it\n[image: a.png, ref: ref-a]"}, b.replies(t, run.ID))
	replies, err := b.mem.RunReplies(t.Context(), run.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"m2:superseded", "m3:superseded"}, []string{replies[0].DKey, replies[1].DKey})
	b.doorbells(t, webhook, 4)
	for _, uid := range []string{"m2", "m3"} {
		sub, err := b.mem.Submission(t.Context(), c.skey, uid)
		require.NoError(t, err)
		require.True(t, sub.Superseded, uid)
	}

	b.ended(t, b.send(t, c, "m5", "and then?").RunID)
	calls := b.model.calls()
	require.Equal(t, []llm.Message{
		{Role: llm.User, Text: "one"},
		{Role: llm.Assistant, Text: "re: one"},
		{Role: llm.User, Text: "no, crop it\n[image: a.png, ref: ref-a]"},
		{Role: llm.Assistant, Text: "re: no, crop it\n[image: a.png, ref: ref-a]"},
		{Role: llm.User, Text: "and then?"},
	}, calls[len(calls)-1].Messages, "what was replaced is in the history and in no prompt")
}

func TestRTR02_WhoWasReplacedIsToldThoughTheNewestMessageSaysNothing(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.admit(t, c.changed("m1", "one", latest), c.changed("m2", "\u200b", latest))[0]
	b.ring(t, c, a, 0)
	require.Equal(t, store.RunFailed, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"superseded: one"}, b.said(t, a.RunID))
	replies := b.replies(t, a.RunID)
	require.Len(t, replies, 2)
	require.Equal(t, supersededText, replies[1])
}

// interrupt admits a message that stops the run, and signals.
func (b *bench) interrupt(t *testing.T, c chat, uid, text string) store.Admitted {
	t.Helper()
	a := b.admit(t, c.row(uid, text, func(m *store.AdmitMessage) { m.Interrupt = true }))[0]
	b.signal(t, c, &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: a.Seq, Gen: a.Gen, RunId: a.StopRun.String()})
	return a
}

func TestInterrupt_KeepsWhatWasDoneAndConfirmsNothing(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := startBench(t, talker(started))
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	receive(t, started)
	b.interrupt(t, c, "m2", "no, two")
	require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State)
	require.Empty(t, b.replies(t, m1.RunID))
	said := b.said(t, m1.RunID)
	require.Len(t, said, 2)
	require.True(t, strings.HasPrefix(said[1], "assistant: "), said[1])
	b.idle(t, c)
	sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
	require.NoError(t, err)
	require.Equal(t, []string{"re: no, two"}, b.replies(t, sub.Run.ID))
	calls := b.model.calls()
	require.Len(t, calls[len(calls)-1].Messages, 3, "the partial answer is part of the conversation")
}

func TestInterrupt_IsNotConfirmedForAStopOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 2)
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n > 1 {
			return echo(ctx, n, req, say)
		}
		started <- struct{}{}
		<-ctx.Done()
		return llm.Response{}, context.Cause(ctx)
	}})
	c := newChat(webhook, "a")
	m1 := b.send(t, c, "m1", "one")
	receive(t, started)
	b.admit(t, c.row("m2", "two"))
	b.stopRun(t, c, "s1")
	require.Equal(t, []string{notice(inbox.StoppedText(1, 0))}, b.repliesOnce(t, m1))
	receive(t, started)
	second := b.session(t, c).RunID
	b.interrupt(t, c, "m3", "three")
	require.Equal(t, store.RunCancelled, b.ended(t, second).State)
	require.Empty(t, b.replies(t, second), "the stop behind it was meant for the first run")
}

func TestSpeakers_AreNamedWhereATurnHasSeveral(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	by := func(name string) func(*event.Message) {
		return func(m *event.Message) { m.Source.UserID, m.Source.UserName = strings.ToLower(name), name }
	}
	rows := []store.AdmitMessage{c.changed("m1", "one", by("Ann")), c.changed("m2", "two", by("Bob"))}
	for i := range rows {
		rows[i].Group = "g"
	}
	a := b.admit(t, rows...)[0]
	b.ring(t, c, a, 0)
	require.Equal(t, []string{"re: two"}, b.repliesOnce(t, a))
	req := b.model.calls()[0]
	require.Equal(t, []string{"Ann", "Bob"}, []string{req.Messages[0].Name, req.Messages[1].Name})
	require.Contains(t, req.System, "Several people")
}

func TestObject_CompletesAMessageThatIsTooLargeForTheInbox(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	whole := c.message("m1", strings.Repeat("long ", 100_000))
	data, err := event.Encode(whole)
	require.NoError(t, err)
	require.NoError(t, b.bus.PutObject(t.Context(), "blob/m1", data))
	a := b.admit(t, c.changed("m1", "", func(m *event.Message) { *m = *whole.Detached("blob/m1") }))[0]
	b.ring(t, c, a, 0)
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, strings.TrimSpace(whole.Text), strings.TrimSpace(b.model.calls()[0].Messages[0].Text))
}

func TestObject_ThatIsGoneIsToldToTheSender(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.admit(t, c.changed("m1", "", func(m *event.Message) { *m = *m.Detached("blob/gone") }))[0]
	b.ring(t, c, a, 0)
	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunFailed, run.State)
	require.Contains(t, run.Error, "blob/gone")
	require.Equal(t, []string{"[Sorry, the content of your message is not available any more. Please send it again.]"}, b.replies(t, a.RunID))
	require.Empty(t, b.model.calls())
	require.Equal(t, store.Idle, b.session(t, c).State)
}

func TestRun_WithNothingToAnswerEndsWithoutAWord(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("c1", "/status", func(m *store.AdmitMessage) { m.Kind = store.KindCommand }))[0]
	b.ring(t, c, a, 0)
	run := b.ended(t, a.RunID)
	require.Equal(t, []any{store.RunDone, int64(1), int64(1)}, []any{run.State, run.FromSeq, run.ToSeq})
	require.Empty(t, b.replies(t, a.RunID))
	require.Empty(t, b.model.calls())
}

func TestRTR02_ARunThatIsTakenOverTellsNobodyTwice(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n > 0 {
			return echo(ctx, n, req, say)
		}
		close(started)
		<-ctx.Done()
		return llm.Response{}, context.Cause(ctx)
	}})
	b.drainSoft = soon
	b.start(t)
	c := newChat(webhook, "a")
	a := b.admit(t, c.changed("m1", "one", latest), c.changed("m2", "two", latest))[0]
	b.ring(t, c, a, 0)
	receive(t, started)
	b.stop(t, time.Minute)
	b.second(t)
	run := b.ended(t, a.RunID)
	require.Equal(t, []any{store.RunDone, 2, int64(1), int64(2)}, []any{run.State, run.Attempts, run.FromSeq, run.ToSeq})
	require.Equal(t, []string{"superseded: one", "user: two", "assistant: re: two"}, b.said(t, a.RunID))
	require.Equal(t, []string{supersededText, "re: two"}, b.replies(t, a.RunID))
}

// The worker of the first message is gone before it has stored anything, so that nobody knows any more what it had taken.
func TestInterrupt_OfARunThatWasTakenOverIsAnswered(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	m1 := b.admit(t, c.row("m1", "one"))[0]
	claimed, err := b.mem.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{SKey: c.skey, Gen: m1.Gen, RunID: m1.RunID, Owner: "gone/1"}}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	b.admit(t, c.row("m2", "two", func(m *store.AdmitMessage) {
		m.Interrupt = true
		m.Body = withPolicy(t, m.Body, event.PolicyInterrupt)
	}))
	taken, err := b.mem.Takeover(t.Context(), store.Takeover{SKey: c.skey, Gen: m1.Gen, Owner: "gone/1"})
	require.NoError(t, err)
	b.ring(t, c, store.Admitted{Gen: taken.Gen, RunID: taken.RunID}, 1)
	require.Equal(t, store.RunCancelled, b.ended(t, m1.RunID).State)
	b.idle(t, c)
	sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
	require.NoError(t, err)
	require.NotEqual(t, m1.RunID, sub.Run.ID)
	require.Equal(t, []string{"re: two"}, b.replies(t, sub.Run.ID))
}

// withPolicy is a body as admission stores it.
func withPolicy(t *testing.T, body json.RawMessage, p event.Policy) json.RawMessage {
	t.Helper()
	var m event.Message
	require.NoError(t, json.Unmarshal(body, &m))
	m.BusyPolicy = p
	raw, err := json.Marshal(&m)
	require.NoError(t, err)
	return raw
}
