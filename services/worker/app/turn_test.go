package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
)

func TestWorker_AnswersOneMessageWithOneReply(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")

	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunDone, run.State)
	require.Equal(t, []int64{1, 1, 1}, []int64{run.FromSeq, run.ToSeq, int64(run.Attempts)})
	require.JSONEq(t, `{"input_tokens":3,"output_tokens":2}`, string(run.Usage))
	require.Empty(t, run.Error)

	rows, err := b.mem.RunMessages(t.Context(), a.RunID)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.JSONEq(t, `{"role":"user","text":"hi"}`, string(rows[0].Content))
	require.JSONEq(t, `{"role":"assistant","text":"re: hi"}`, string(rows[1].Content))
	require.Equal(t, []int64{1, 0}, []int64{rows[0].InboxSeq, rows[1].InboxSeq})
	require.Equal(t, []int{1, 2}, []int{rows[0].N, rows[1].N})

	s := b.session(t, c)
	require.Equal(t, store.Idle, s.State)
	require.Equal(t, []int64{1, 1}, []int64{s.DoneSeq, s.OutSeq})

	rung := b.doorbells(t, webhook, 1)[0]
	require.Equal(t, c.skey+":1:0", rung.ID)
	var bell deliveryv1.Doorbell
	require.NoError(t, proto.Unmarshal(rung.Data, &bell))
	require.Equal(t, c.skey, bell.GetSkey())
	require.Equal(t, int64(1), bell.GetOutSeq())
	deliveries, err := b.mem.ClaimDeliveries(t.Context(), "egress/1", []store.DeliveryClaim{{SKey: c.skey, OutSeq: 1}})
	require.NoError(t, err)
	require.Len(t, deliveries, 1)
	require.JSONEq(t, `[{"markdown":"re: hi"}]`, string(deliveries[0].Parts))
	var target event.Address
	require.NoError(t, json.Unmarshal(deliveries[0].Target, &target))
	require.Equal(t, event.Address{Platform: webhook, ChatID: "c1", MessageID: "m1"}, target)
}

func TestWorker_GivesTheModelPromptNotesAndHistory(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	b.ended(t, b.send(t, c, "m1", "one").RunID)
	b.ended(t, b.send(t, c, "m2", "two").RunID)

	calls := b.model.calls()
	require.Len(t, calls, 2)
	require.Equal(t, "m-1", calls[1].Model)
	require.Contains(t, calls[1].System, "Be brief.")
	require.Contains(t, calls[1].System, "You are talking on webhook.")
	require.Contains(t, calls[1].System, "workspace folder")
	require.Equal(t, []llm.Message{
		{Role: llm.User, Text: "one"}, {Role: llm.Assistant, Text: "re: one"}, {Role: llm.User, Text: "two"},
	}, calls[1].Messages)
	require.Equal(t, []string{agent.AskUser, "look", "send"}, toolNames(calls[1]))
}

func toolNames(req llm.Request) []string {
	var names []string
	for _, spec := range req.Tools {
		names = append(names, spec.Name)
	}
	return names
}

func TestWorker_ReadRepliesAreBornSettledAndNotRung(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(event.PlatformAPI, "a")
	a := b.send(t, c, "m1", "hi")
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"re: hi"}, b.replies(t, a.RunID))
	s := b.session(t, c)
	require.Equal(t, []int64{1, 1}, []int64{s.OutSeq, s.OutSent})
	events := b.lifecycle(t, a.RunID, event.ProcessingCompleted)
	require.Equal(t, event.RunFinished, events[len(events)-2].Type, "nobody delivers: the worker completes")
	b.doorbells(t, event.PlatformAPI, 0)
}

func TestWorker_ChecksPointBeforeAnUnsafeTool(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: func(_ context.Context, n int, req llm.Request, _ func(string)) (llm.Response, error) {
		if n == 0 {
			return call("send", `{}`), nil
		}
		return text("sent, says " + req.Messages[len(req.Messages)-1].Text), nil
	}})
	stored := make(chan []string, 1)
	b.tools.execute = func(_ context.Context, req tool.Request) (tool.Result, error) {
		stored <- b.said(t, uuid.MustParse(req.RunID))
		return tool.Result{Outcome: tool.OK, Content: "the tool"}, nil
	}
	b.start(t)
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "send it")

	require.Equal(t, []string{"user: send it", "assistant: [send]"}, receive(t, stored))
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, []string{
		"user: send it", "assistant: [send]", "tool: the tool", "assistant: sent, says the tool",
	}, b.said(t, a.RunID))
	require.Equal(t, []string{"sent, says the tool"}, b.replies(t, a.RunID))
	require.Len(t, b.tools.calls(), 1)
	req := b.tools.calls()[0]
	require.Equal(t, a.RunID.String()+":"+req.CallID, req.IdemKey)
	require.Equal(t, []string{c.skey, config.DefaultTenant, "u1", "send"}, []string{req.Session, req.Tenant, req.User, req.Name})
}

func TestWorker_AnswersWaitingMessagesInOrderOneByOne(t *testing.T) {
	t.Parallel()
	var parallel, most atomic.Int32
	held := make(chan struct{})
	b := newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		most.Store(max(most.Load(), parallel.Add(1)))
		defer parallel.Add(-1)
		if n == 0 {
			<-held
		}
		return echo(ctx, n, req, say)
	}})
	rings := make(chan bus.Msg, 64)
	_, err := b.bus.Listen("run.>", rings)
	require.NoError(t, err)
	b.start(t)

	const count = 20
	c := newChat(webhook, "a")
	first := b.send(t, c, "m1", "1")
	var rows []store.AdmitMessage
	for i := 2; i <= count; i++ {
		rows = append(rows, c.row(fmt.Sprintf("m%d", i), fmt.Sprint(i)))
	}
	b.admit(t, rows...)
	close(held)

	s := b.idle(t, c)
	require.Equal(t, []int64{count, count}, []int64{s.DoneSeq, s.OutSeq})
	require.Equal(t, int32(1), most.Load(), "runs of a session never overlap")
	var asked []string
	for _, req := range b.model.calls() {
		asked = append(asked, req.Messages[len(req.Messages)-1].Text)
	}
	var want []string
	for i := 1; i <= count; i++ {
		want = append(want, fmt.Sprint(i))
	}
	require.Equal(t, want, asked)
	require.Equal(t, []string{"re: 1"}, b.replies(t, first.RunID))
	// One ring by the test, then one after 8 runs in a row and one after 16.
	require.Len(t, rings, 3)
}

func TestWorker_RungTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		<-held
		return echo(ctx, n, req, say)
	}})
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	for n := 1; n <= 5; n++ {
		b.ring(t, c, a, n)
	}
	other := newChat(webhook, "b")
	close(held)
	require.Equal(t, 1, b.ended(t, a.RunID).Attempts)
	b.ring(t, c, a, 6)
	b.ended(t, b.send(t, other, "m1", "ho").RunID) // taken from the queue behind the rings
	require.Len(t, b.model.calls(), 2)
	require.Equal(t, int64(1), b.session(t, c).OutSeq)
}

func TestWorker_RungTwiceRunsOnceWithoutRedis(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	b.redis.Close()
	b.start(t)
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "hi"))[0]
	for n := range 4 {
		b.ring(t, c, a, n)
	}
	require.Equal(t, 1, b.ended(t, a.RunID).Attempts)
	require.Equal(t, []string{"re: hi"}, b.replies(t, a.RunID))
}

func TestWorker_DropsADoorbellOfAnotherGenerationAndFreesTheSession(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "hi"))[0]
	stale := a
	stale.Gen--
	b.ring(t, c, stale, 0)
	require.Eventually(t, func() bool { return b.sum(t, "hermes_claims_refused_total") == 1 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return b.sum(t, "hermes_worker_slots_used") == 0 }, patience, time.Millisecond)
	require.False(t, b.redis.Exists("l:{"+c.skey+"}"), "the session is free")
	require.Equal(t, store.Queued, b.session(t, c).State)
	require.Empty(t, b.model.calls())
	b.ring(t, c, a, 0)
	b.ended(t, a.RunID)
}

func TestWorker_LeavesARunAloneWhoseLeaseIsHeld(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "hi"))[0]
	held := lease.Lease{SKey: c.skey, Gen: a.Gen, RunID: a.RunID.String(), Holder: "worker-2/x"}
	_, err := b.leases.Acquire(t.Context(), []lease.Lease{held})
	require.NoError(t, err)
	b.ring(t, c, a, 0)
	b.ended(t, b.send(t, newChat(webhook, "b"), "m1", "ho").RunID)
	require.Equal(t, store.Queued, b.session(t, c).State)

	require.NoError(t, b.leases.Release(t.Context(), []lease.Lease{held}))
	b.ring(t, c, a, 1)
	b.ended(t, a.RunID)
}

func TestWorker_TakesAGroupAsOneTurn(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	admitted := b.admit(t,
		c.row("m1", "one", inGroup("album")), c.row("m2", "two", inGroup("album")), c.row("m3", "other"),
		c.row("m4", "late", inGroup("album")))
	b.ring(t, c, admitted[0], 0)
	s := b.idle(t, c)
	require.Equal(t, []int64{4, 2}, []int64{s.DoneSeq, s.OutSeq}, "two turns cover four messages")
	require.Equal(t, []string{"user: one", "user: two", "user: late", "assistant: re: late"}, b.said(t, admitted[0].RunID))
	run, err := b.mem.Run(t.Context(), admitted[0].RunID)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, []int64{run.FromSeq, run.ToSeq}, "the late row is taken out of its place")

	sub, err := b.mem.Submission(t.Context(), c.skey, "m3")
	require.NoError(t, err)
	require.Equal(t, []int64{3, 4}, []int64{sub.Run.FromSeq, sub.Run.ToSeq}, "and the range behind skips it")
	require.Equal(t, []string{"re: other"}, b.replies(t, sub.Run.ID))
	sub, err = b.mem.Submission(t.Context(), c.skey, "m4")
	require.NoError(t, err)
	require.Equal(t, admitted[0].RunID, sub.Run.ID)
}

func TestWorker_ApologisesWhenTheModelFails(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: func(context.Context, int, llm.Request, func(string)) (llm.Response, error) {
		return llm.Response{}, &llm.Error{Kind: llm.KindAuth, Status: 401, Message: "key sk-123 is wrong"}
	}})
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunFailed, run.State)
	require.Contains(t, run.Error, "auth (401)")
	replies := b.replies(t, a.RunID)
	require.Len(t, replies, 1)
	require.Contains(t, replies[0], "Sorry")
	require.NotContains(t, replies[0], "sk-123")
	require.Equal(t, []string{"user: hi"}, b.said(t, a.RunID))
	b.doorbells(t, webhook, 1)
}

func TestWorker_ApologisesForAnUnknownProfile(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "hi", func(m *store.AdmitMessage) { m.AgentID = "gone" }))[0]
	b.ring(t, c, a, 0)
	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunFailed, run.State)
	require.Contains(t, run.Error, `unknown profile "gone"`)
	require.Contains(t, b.replies(t, a.RunID)[0], "Sorry")
	require.Equal(t, []string{"user: hi"}, b.said(t, a.RunID))
	require.Empty(t, b.model.calls())
}

func TestWorker_RejectsAMessageWithoutContent(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", " \u200b ")
	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunFailed, run.State)
	require.Len(t, b.replies(t, a.RunID), 1)
	require.Empty(t, b.model.calls())
}

func TestWorker_EndsARunWhoseMessageCannotBeRead(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "hi", func(m *store.AdmitMessage) { m.Body = json.RawMessage(`["not a message"]`) }))[0]
	b.ring(t, c, a, 0)
	require.Equal(t, store.RunFailed, b.ended(t, a.RunID).State)
	require.Empty(t, b.replies(t, a.RunID), "nobody knows where to reply")
	require.Equal(t, store.Idle, b.session(t, c).State)
}

func TestWorker_StopsARunAtItsWallTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: func(ctx context.Context, _ int, _ llm.Request, _ func(string)) (llm.Response, error) {
		<-ctx.Done()
		return llm.Response{}, context.Cause(ctx)
	}})
	p := b.cfg.Profiles[config.DefaultProfile]
	p.Limits.Wall = 50 * time.Millisecond
	b.cfg.Profiles[config.DefaultProfile] = p
	b.start(t)
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunFailed, run.State)
	require.Contains(t, run.Error, "wall time")
	require.Contains(t, b.replies(t, a.RunID)[0], "longer than I am allowed")
}

func TestWorker_HoldsNoMoreRunsThanSlots(t *testing.T) {
	t.Parallel()
	started := make(chan string, 8)
	free := make(chan struct{})
	b := newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		started <- req.Messages[0].Text
		<-free
		return echo(ctx, n, req, say)
	}})
	b.cfg.Worker.Slots = 2
	b.start(t)
	var runs []uuid.UUID
	for _, name := range []string{"a", "b", "c"} {
		runs = append(runs, b.send(t, newChat(webhook, name), "m1", name).RunID)
	}
	got := []string{receive(t, started), receive(t, started)}
	slices.Sort(got)
	require.Equal(t, []string{"a", "b"}, got)
	third, err := b.mem.Run(t.Context(), runs[2])
	require.NoError(t, err)
	require.Equal(t, store.RunQueued, third.State)
	close(free)
	require.Equal(t, "c", receive(t, started))
	for _, id := range runs {
		require.Equal(t, store.RunDone, b.ended(t, id).State)
	}
}

// flaky is a store that does not answer the first tries of a finish, though some of them are written.
type flaky struct {
	store.Store
	failures atomic.Int32
	written  bool
}

func (f *flaky) Finish(ctx context.Context, fins []store.Finish) ([]store.FinishResult, error) {
	if f.failures.Add(-1) >= 0 {
		if f.written {
			if _, err := f.Store.Finish(ctx, fins); err != nil {
				return nil, err
			}
		}
		return nil, fmt.Errorf("connection lost: %w", store.ErrUnavailable)
	}
	return f.Store.Finish(ctx, fins)
}

func TestWorker_FinishesOnceThoughTheStoreDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"lost before the write": false, "lost after the write": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, &script{answer: echo})
			f := &flaky{Store: b.mem, written: written}
			f.failures.Store(3)
			b.backends.Store = f
			b.start(t)
			c := newChat(webhook, "a")
			a := b.send(t, c, "m1", "hi")
			b.lifecycle(t, a.RunID, event.RunFinished)
			require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
			require.Equal(t, []string{"re: hi"}, b.replies(t, a.RunID))
			require.Equal(t, int64(1), b.session(t, c).OutSeq)
			require.Negative(t, f.failures.Load())
		})
	}
}

func TestWorker_NamesTheSpeakersOfASharedConversation(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	shared := false
	p := b.cfg.Profiles[config.DefaultProfile]
	p.Session.GroupSessionsPerUser = &shared
	b.cfg.Profiles[config.DefaultProfile] = p
	b.start(t)
	c := newChat(webhook, "a")
	m := c.message("m1", "hi")
	m.Source.ChatType, m.Source.UserName = "group", "Ann"
	body, err := json.Marshal(m)
	require.NoError(t, err)
	a := b.admit(t, c.row("m1", "", func(row *store.AdmitMessage) { row.Body = body }))[0]
	b.ring(t, c, a, 0)
	b.ended(t, a.RunID)
	req := b.model.calls()[0]
	require.Equal(t, "Ann", req.Messages[0].Name)
	require.Contains(t, req.System, "Several people")
}

// unreachable is a tool server that cannot be asked.
type unreachable struct{ *tools }

func (unreachable) Tools(context.Context) ([]tool.Spec, error) { return nil, tool.ErrUnavailable }

func TestWorker_AnswersWithoutToolsWhileNoToolServerIsThere(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	b.executor = unreachable{b.tools}
	b.start(t)
	a := b.send(t, newChat(webhook, "a"), "m1", "hi")
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Equal(t, []string{agent.AskUser}, toolNames(b.model.calls()[0]), "only what needs no tool server")
}

// forgetful is a store whose first reads are not answered.
type forgetful struct {
	store.Store
	failures atomic.Int32
}

func (f *forgetful) History(ctx context.Context, skey string, id uuid.UUID, limit int) ([]store.Message, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, fmt.Errorf("read history: %w", store.ErrUnavailable)
	}
	return f.Store.History(ctx, skey, id, limit)
}

func TestWorker_WaitsForTheHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	f := &forgetful{Store: b.mem}
	b.backends.Store = f
	b.start(t)
	c := newChat(webhook, "a")
	b.foreignTurn(t, c, "m1", "one", "re: one") // this worker does not know it
	f.failures.Store(3)
	b.ended(t, b.send(t, c, "m2", "two").RunID)
	require.Len(t, b.model.calls()[0].Messages, 3)
	require.Negative(t, f.failures.Load())
}

func TestNew_RefusesAProfileWithoutModel(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	b.cfg.Profiles["other"] = config.Profile{Provider: "gone"}
	err := b.new()
	require.ErrorContains(t, err, `profiles.other.provider: no model for "gone"`)
}

func TestNew_RefusesAWorkerIDThatIsNoToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: echo})
	b.cfg.Worker.ID = "Worker.1"
	require.ErrorContains(t, b.new(), "worker.id")
}
