package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func claimCases() []testCase {
	return []testCase{
		{"claim makes the run this worker's", claimRun},
		{"claim returns the rows above done_seq in order", claimInbox},
		{"claim after a takeover returns the run's tool calls", claimToolCalls},
		{"claim after a takeover keeps first gen and pins and counts attempts", claimTakenOver},
		{"first gen stays that of the run's creation", claimFirstGen},
		{"run that is running cannot be claimed by another", claimTwice},
		{"claim repeated by its owner is answered again", claimRepeated},
		{"claim of another generation, run or session gets nothing", claimStale},
		{"finished run cannot be claimed", claimFinished},
		{"many runs in one call: the claimable ones are returned", claimMany},
		{"two claims of one run in one call: one wins", claimTwiceInOneCall},
		{"many claimers of many runs: each has one winner", claimRace},
		{"claim with poison is rejected and claims nothing", claimPoison},
		{"heartbeats keep the newest of each worker", heartbeats},
	}
}

func checkpointCases() []testCase {
	return []testCase{
		{"checkpoint stores messages and returns the signals", checkpointStores},
		{"checkpoint repeated changes nothing", checkpointRepeated},
		{"checkpoint updates state and result of a tool call", checkpointToolCall},
		{"checkpoint takes rows out of their place", checkpointTaken},
		{"checkpoint is fenced by generation, run and owner", checkpointFenced},
		{"checkpoint of a run that was taken over is fenced", checkpointTakenOver},
		{"checkpoint of a run that is not running is fenced", checkpointNotRunning},
		{"one fenced checkpoint does not stop the others of the call", checkpointBatch},
		{"two checkpoints of one run in one call are both stored", checkpointTwiceInOneCall},
		{"checkpoint with poison is rejected and stores nothing", checkpointPoison},
	}
}

func claimRun(t *testing.T, e *env) {
	c := newChat("a")
	m := c.user("m1")
	a := e.admitOne(t, m)
	fence := store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: worker}
	got, ok := e.tryClaim(t, fence)
	require.True(t, ok)
	require.Len(t, got.Inbox, 1)
	require.Empty(t, got.ToolCalls)
	got.Inbox, got.ToolCalls = nil, nil
	require.Equal(t, store.Claimed{
		Fence: fence, Tenant: tenant, SessionID: m.SessionID, AgentID: agent, LastSeq: 1, FirstGen: 1, Attempts: 1,
	}, got)

	s := e.session(t, c)
	require.Equal(t, store.Running, s.State)
	require.Equal(t, worker, s.Owner)
	require.Equal(t, a.Gen, s.Gen, "the claim does not change the generation")
	require.False(t, s.TouchedAt.IsZero())
	r := e.run(t, a.RunID)
	require.Equal(t, store.RunRunning, r.State)
	require.Equal(t, worker, r.Owner)
	require.Equal(t, []int64{1, 1, 1}, []int64{r.FirstGen, r.LastGen, int64(r.Attempts)})
	require.False(t, r.StartedAt.IsZero())
}

func claimInbox(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	grouped := c.user("m2")
	grouped.Group = "album"
	e.admit(t, grouped, c.command("m3"))
	e.finish(t, done(run, 1))

	got := e.claim(t, c, worker)
	require.Equal(t, []int64{1, 3}, []int64{got.DoneSeq, got.LastSeq})
	require.Len(t, got.Inbox, 2)
	require.JSONEq(t, string(text("m2")), string(got.Inbox[0].Body))
	require.JSONEq(t, string(text("m3")), string(got.Inbox[1].Body))
	got.Inbox[0].Body, got.Inbox[1].Body = nil, nil
	require.Equal(t, []store.InboxRow{
		{Seq: 2, UID: "m2", Kind: store.KindUser, Group: "album", Traceparent: trace("m2")},
		{Seq: 3, UID: "m3", Kind: store.KindCommand, Traceparent: trace("m3")},
	}, got.Inbox)
}

func call(id, effect string, state store.ToolState, result string) store.ToolCall {
	c := store.ToolCall{CallID: id, Name: "search", Effect: effect, State: state}
	if result != "" {
		c.Result = text(result)
	}
	return c
}

// retake queues the running run again and claims it for a new owner.
func (e *env) retake(t *testing.T, c chat) store.Claimed {
	t.Helper()
	e.takeOver(t, c)
	return e.claim(t, c, "worker-2/b")
}

// requireCalls compares tool calls, their results by meaning.
func requireCalls(t *testing.T, want, got []store.ToolCall) {
	t.Helper()
	flat := func(calls []store.ToolCall) map[string]store.ToolCall {
		out := map[string]store.ToolCall{}
		for _, c := range calls {
			if c.Result != nil {
				c.Result = json.RawMessage(textOf(t, c.Result))
			}
			out[c.CallID] = c
		}
		return out
	}
	require.Len(t, got, len(want))
	require.Equal(t, flat(want), flat(got))
}

func claimToolCalls(t *testing.T, e *env) {
	a, b := newChat("a"), newChat("b")
	want := []store.ToolCall{call("c1", "read", store.ToolDone, "42"), call("c2", "unsafe", store.ToolIntent, "")}
	for _, c := range []chat{a, b} {
		run := e.start(t, c, "m1")
		e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, ToolCalls: want})
	}
	got := e.retake(t, a)
	requireCalls(t, want, got.ToolCalls)

	e.admitOne(t, a.user("m2"))
	e.finish(t, done(got, 1))
	require.Empty(t, e.claim(t, a, worker).ToolCalls, "calls belong to a run, not to its session")
}

func claimTakenOver(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	pins := func(owner string, gen int64) store.ClaimRequest {
		return store.ClaimRequest{
			Fence: store.Fence{SKey: c.skey, Gen: gen, RunID: a.RunID, Owner: owner}, Pins: text(owner),
		}
	}
	first, err := e.Store.Claim(t.Context(), []store.ClaimRequest{pins("w/1", a.Gen)})
	require.NoError(t, err)
	require.Len(t, first, 1)
	require.Equal(t, "w/1", textOf(t, first[0].Pins))

	e.takeOver(t, c)
	second, err := e.Store.Claim(t.Context(), []store.ClaimRequest{pins("w/1", a.Gen), pins("w/2", a.Gen+1)})
	require.NoError(t, err)
	require.Len(t, second, 1)
	got := second[0]
	require.Equal(t, "w/2", got.Owner)
	require.Equal(t, []int64{2, 1}, []int64{got.Gen, got.FirstGen})
	require.Equal(t, []int{2, 1}, []int{got.Attempts, got.Attempt})
	require.Equal(t, "w/1", textOf(t, got.Pins), "pins of the first claim are kept")
	r := e.run(t, a.RunID)
	require.Equal(t, []int64{1, 2}, []int64{r.FirstGen, r.LastGen})

	e.finish(t, done(got, 1))
	require.Equal(t, []int{0, 0}, []int{e.session(t, c).Attempt, e.session(t, c).Stall})
}

func claimFirstGen(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	run := e.start(t, c, "m2")
	require.Equal(t, []int64{3, 3}, []int64{run.Gen, run.FirstGen})
	e.admitOne(t, c.user("m3"))
	e.finish(t, done(run, 2))
	run = e.claim(t, c, worker)
	require.Equal(t, []int64{4, 4, 1}, []int64{run.Gen, run.FirstGen, int64(run.Attempts)})
}

func claimTwice(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	second := run.Fence
	second.Owner = "worker-2/a"
	_, ok := e.tryClaim(t, second)
	require.False(t, ok)
	require.Equal(t, worker, e.session(t, c).Owner)
	require.Equal(t, 1, e.run(t, run.RunID).Attempts)
}

// A claim of unknown outcome may be sent again: the nonce in the owner tells that it is the same one.
func claimRepeated(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "hello", 1)}})
	again, ok := e.tryClaim(t, run.Fence)
	require.True(t, ok)
	require.Len(t, again.Inbox, 1)
	require.Equal(t, run.FirstGen, again.FirstGen)
	require.Equal(t, 2, again.Attempts, "it cannot promise that nothing was stored")
	e.finish(t, done(again, 1))
	_, ok = e.tryClaim(t, run.Fence)
	require.False(t, ok, "finished")
}

func claimStale(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	good := store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: worker}
	for name, change := range map[string]func(*store.Fence){
		"older generation": func(f *store.Fence) { f.Gen-- },
		"newer generation": func(f *store.Fence) { f.Gen++ },
		"another run":      func(f *store.Fence) { f.RunID = newID() },
		"unknown session":  func(f *store.Fence) { f.SKey = newChat("b").skey },
	} {
		f := good
		change(&f)
		_, ok := e.tryClaim(t, f)
		require.False(t, ok, name)
	}
	require.Equal(t, store.Queued, e.session(t, c).State)
	_, ok := e.tryClaim(t, good)
	require.True(t, ok)
}

func claimFinished(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.finish(t, done(run, 1))
	_, ok := e.tryClaim(t, run.Fence)
	require.False(t, ok)
	require.Equal(t, store.Idle, e.session(t, c).State)
}

func claimMany(t *testing.T, e *env) {
	const n = 100
	reqs := make([]store.ClaimRequest, n)
	for i, name := range uids("chat", n) {
		c := newChat(name)
		a := e.admitOne(t, c.user("m1"))
		reqs[i] = store.ClaimRequest{Fence: store.Fence{SKey: c.skey, Gen: a.Gen + int64(i%2), RunID: a.RunID, Owner: worker}}
	}
	got, err := e.Store.Claim(t.Context(), reqs)
	require.NoError(t, err)
	require.Len(t, got, n/2)
	mine := map[string]store.Claimed{}
	for _, c := range got {
		mine[c.SKey] = c
	}
	for i, q := range reqs {
		c, ok := mine[q.SKey]
		require.Equal(t, i%2 == 0, ok)
		if ok {
			require.Equal(t, q.Fence, c.Fence)
			require.Len(t, c.Inbox, 1)
			require.Equal(t, int64(1), c.Inbox[0].Seq)
		}
	}
}

func claimTwiceInOneCall(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	fence := store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: "worker-1/a"}
	second := fence
	second.Owner = "worker-1/b"
	got, err := e.Store.Claim(t.Context(), []store.ClaimRequest{{Fence: fence}, {Fence: second}})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, e.session(t, c).Owner, got[0].Owner)
	require.Equal(t, 1, e.run(t, a.RunID).Attempts)
}

func claimRace(t *testing.T, e *env) {
	const sessions, claimers = 20, 12
	var admitted []store.Admitted
	var chats []chat
	for _, name := range uids("chat", sessions) {
		c := newChat(name)
		chats = append(chats, c)
		admitted = append(admitted, e.admitOne(t, c.user("m1")))
	}
	results := make([][]store.Claimed, claimers)
	var g errgroup.Group
	for i, owner := range uids("worker/nonce", claimers) {
		g.Go(func() (err error) {
			reqs := make([]store.ClaimRequest, sessions)
			for j, a := range admitted {
				reqs[j] = store.ClaimRequest{Fence: store.Fence{SKey: chats[j].skey, Gen: a.Gen, RunID: a.RunID, Owner: owner}}
			}
			results[i], err = e.Store.Claim(t.Context(), reqs)
			return err
		})
	}
	require.NoError(t, g.Wait())
	winners := map[string][]string{}
	for _, claimed := range results {
		for _, c := range claimed {
			winners[c.SKey] = append(winners[c.SKey], c.Owner)
		}
	}
	for _, c := range chats {
		require.Equal(t, []string{e.session(t, c).Owner}, winners[c.skey])
	}
}

func claimPoison(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	_, err := e.Store.Claim(t.Context(), []store.ClaimRequest{{
		Fence: store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: worker}, Pins: json.RawMessage(`{"model":"\u0000"}`),
	}})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Equal(t, store.Queued, e.session(t, c).State)
}

func heartbeats(t *testing.T, e *env) {
	first := store.WorkerBeat{WorkerID: "w1", Boot: newID(), Slots: 10, Used: 3}
	other := store.WorkerBeat{WorkerID: "w2", Boot: newID(), Slots: 5, Used: 5}
	newer := store.WorkerBeat{WorkerID: "w1", Boot: newID(), Slots: 12, Used: 1, Draining: true}
	for _, beat := range []store.WorkerBeat{first, other, newer} {
		require.NoError(t, e.Store.Heartbeat(t.Context(), beat))
	}
	e.Advance(t, 7*time.Second)
	got, err := e.Store.Workers(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.WorkerBeat{newer, other}, []store.WorkerBeat{got[0].WorkerBeat, got[1].WorkerBeat})
	require.GreaterOrEqual(t, got[0].Silent, 7*time.Second)
	e.Advance(t, 25*time.Hour)
	got, err = e.Store.Workers(t.Context())
	require.NoError(t, err)
	require.Empty(t, got, "those that were not heard of in the last day are forgotten")
}

func checkpointStores(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.user("m2"))
	signals := e.checkpoint(t, store.Checkpoint{
		Fence: run.Fence, RunGen: run.FirstGen,
		Messages: []store.Message{said(1, "user", "hello", 1), said(2, "assistant", "hi", 0)},
	})
	require.Equal(t, store.Signals{LastSeq: 2}, signals)

	got, err := e.Store.RunMessages(t.Context(), run.RunID)
	require.NoError(t, err)
	require.Equal(t, []string{"user: hello", "assistant: hi"}, transcript(t, got))
	got[0].Content = nil
	require.Equal(t, store.Message{RunGen: run.FirstGen, N: 1, RunID: run.RunID, Role: "user", InboxSeq: 1}, got[0])
}

func checkpointRepeated(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	cp := store.Checkpoint{
		Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "hello", 1)},
		ToolCalls: []store.ToolCall{call("c1", "read", store.ToolIntent, "")}, Taken: []int64{1},
	}
	e.checkpoint(t, cp)
	before := e.history(t, c, 10)
	cp.Messages = []store.Message{said(1, "user", "another text", 1), said(2, "assistant", "new", 0)}
	e.checkpoint(t, cp)
	after := e.history(t, c, 10)
	require.Len(t, after, 2)
	require.Equal(t, before[0], after[0], "a message that is stored is never changed")
	require.Equal(t, "new", textOf(t, after[1].Content))
}

func checkpointToolCall(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	for _, state := range []store.ToolCall{
		call("c1", "unsafe", store.ToolIntent, ""), call("c2", "read", store.ToolIntent, ""), call("c1", "unsafe", store.ToolDone, "42"),
	} {
		e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, ToolCalls: []store.ToolCall{state}})
	}
	requireCalls(t, []store.ToolCall{
		call("c1", "unsafe", store.ToolDone, "42"), call("c2", "read", store.ToolIntent, ""),
	}, e.retake(t, c).ToolCalls)
}

func checkpointTaken(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.users("m2", "m3")...)
	require.Equal(t, uuid.Nil, e.submission(t, c, "m3").Run.ID)
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Taken: []int64{3}})
	require.Equal(t, run.RunID, e.submission(t, c, "m3").Run.ID)
	require.Equal(t, uuid.Nil, e.submission(t, c, "m2").Run.ID)
	e.finish(t, done(run, 1))

	next := e.claim(t, c, worker)
	require.Len(t, next.Inbox, 2)
	require.Equal(t, []uuid.UUID{uuid.Nil, run.RunID}, []uuid.UUID{next.Inbox[0].RunID, next.Inbox[1].RunID})
	e.finish(t, done(next, 3))
	require.Equal(t, run.RunID, e.submission(t, c, "m3").Run.ID, "a row belongs to the run that took it")
	require.Equal(t, next.RunID, e.submission(t, c, "m2").Run.ID)
}

// stale are fences that are not that of the run, by what is wrong with them.
func stale(good store.Fence) map[string]store.Fence {
	out := map[string]store.Fence{}
	for name, change := range map[string]func(*store.Fence){
		"older generation": func(f *store.Fence) { f.Gen-- },
		"newer generation": func(f *store.Fence) { f.Gen++ },
		"another run":      func(f *store.Fence) { f.RunID = newID() },
		"another owner":    func(f *store.Fence) { f.Owner = "worker-1/b" },
		"unknown session":  func(f *store.Fence) { f.SKey = newChat("unknown").skey },
	} {
		f := good
		change(&f)
		out[name] = f
	}
	return out
}

func checkpointFenced(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	for name, fence := range stale(run.Fence) {
		got := e.tryCheckpoint(t, store.Checkpoint{
			Fence: fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", name, 1)}, Taken: []int64{1},
		})
		require.ErrorIs(t, got.Err, store.ErrFenced, name)
	}
	require.Empty(t, e.history(t, c, 10))
	require.Equal(t, uuid.Nil, e.submission(t, c, "m1").Run.ID)
}

func checkpointTakenOver(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	late := store.Checkpoint{
		Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "late", 1)},
		ToolCalls: []store.ToolCall{call("c1", "read", store.ToolIntent, "")},
	}
	e.takeOver(t, c)
	require.ErrorIs(t, e.tryCheckpoint(t, late).Err, store.ErrFenced, "while it is queued")
	next := e.claim(t, c, "worker-2/b")
	require.ErrorIs(t, e.tryCheckpoint(t, late).Err, store.ErrFenced, "while another runs it")
	require.Empty(t, e.history(t, c, 10))
	require.Empty(t, next.ToolCalls)
}

func checkpointNotRunning(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	cp := store.Checkpoint{
		Fence:    store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: worker},
		Messages: []store.Message{said(1, "user", "early", 1)},
	}
	require.ErrorIs(t, e.tryCheckpoint(t, cp).Err, store.ErrFenced, "queued")

	run := e.claim(t, c, worker)
	e.finish(t, done(run, 1))
	cp.Fence = run.Fence
	require.ErrorIs(t, e.tryCheckpoint(t, cp).Err, store.ErrFenced, "finished")
	require.Empty(t, e.history(t, c, 10))
}

func checkpointBatch(t *testing.T, e *env) {
	var cps []store.Checkpoint
	var chats []chat
	for i, name := range uids("chat", 9) {
		c := newChat(name)
		run := e.start(t, c, "m1")
		cp := store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", name, 1)}}
		if i%3 == 1 {
			cp.Owner = "somebody else"
		}
		chats, cps = append(chats, c), append(cps, cp)
	}
	got, err := e.Store.Checkpoint(t.Context(), cps)
	require.NoError(t, err)
	require.Len(t, got, len(cps))
	for i, c := range chats {
		if i%3 == 1 {
			require.ErrorIs(t, got[i].Err, store.ErrFenced)
			require.Empty(t, e.history(t, c, 10))
			continue
		}
		require.NoError(t, got[i].Err)
		require.Equal(t, int64(1), got[i].LastSeq)
		require.Len(t, e.history(t, c, 10), 1)
	}
}

func checkpointTwiceInOneCall(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	cp := func(n int) store.Checkpoint {
		return store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(n, "assistant", "step", 0)}}
	}
	got, err := e.Store.Checkpoint(t.Context(), []store.Checkpoint{cp(1), cp(2)})
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
	require.NoError(t, got[1].Err)
	require.Len(t, e.history(t, c, 10), 2)
}

func checkpointPoison(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	bad := json.RawMessage(`{"text":"\u0000"}`)
	for name, cp := range map[string]store.Checkpoint{
		"message": {Messages: []store.Message{said(1, "user", "fine", 1), {N: 2, Role: "assistant", Content: bad}}},
		"role":    {Messages: []store.Message{said(1, "user", "fine", 1), said(2, "a\x00", "x", 0)}},
		"tool result": {
			Messages:  []store.Message{said(1, "user", "fine", 1)},
			ToolCalls: []store.ToolCall{{CallID: "c1", State: store.ToolDone, Result: bad}},
		},
	} {
		cp.Fence, cp.RunGen = run.Fence, run.FirstGen
		_, err := e.Store.Checkpoint(t.Context(), []store.Checkpoint{cp})
		require.ErrorIs(t, err, store.ErrRejected, name)
	}
	require.Empty(t, e.history(t, c, 10))
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "fine", 1)}})
}
