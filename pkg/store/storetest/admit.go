package storetest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func admitCases() []testCase {
	return []testCase{
		{"first message opens the session and queues a run", admitNewSession},
		{"message of an idle session queues a run of the next generation", admitIdle},
		{"message of a queued session waits for the run that is there", admitQueued},
		{"message of a running session waits and names the owner", admitRunning},
		{"a session keeps its agent, class and conversation", admitKeepsSession},
		{"duplicate across calls changes nothing", admitDuplicate},
		{"duplicate within a batch is admitted once", admitDuplicateInBatch},
		{"the same uid in another session is no duplicate", admitUIDPerSession},
		{"messages of a session keep their order within a batch", admitOrder},
		{"many sessions in one batch", admitManySessions},
		{"row that wants no run starts none", admitCovered},
		{"steer raises ctl_seq", admitSteer},
		{"notice answers the first message of a session", noticeFirst},
		{"notice of an idle and of a running session", noticeNumbers},
		{"notice keeps its own dkey", noticeDKey},
		{"notice that is read is born sent", noticeRead},
		{"duplicate command gives no second notice", noticeOnce},
		{"dead letters are committed with the messages", deadLetters},
		{"poison is rejected and nothing is committed", admitPoison},
		{"JSON that only looks like poison is admitted", admitHarmless},
		{"ended context is unavailable and admits nothing", admitEndedContext},
	}
}

func admitNewSession(t *testing.T, e *env) {
	c := newChat("a")
	m := c.user("m1")
	require.Equal(t, store.Admitted{Seq: 1, Gen: 1, State: store.Queued, RunID: m.RunID, Created: true}, e.admitOne(t, m))

	s := e.session(t, c)
	require.Equal(t, tenant, s.Tenant)
	require.Equal(t, c.key, s.SessionKey)
	require.Equal(t, m.SessionID, s.SessionID)
	require.Equal(t, session.Partition(c.skey), s.Partition)
	require.Equal(t, agent, s.AgentID)
	require.Equal(t, runClass, s.RunClass)
	require.Equal(t, store.Queued, s.State)
	require.Equal(t, []int64{1, 1, 0, 1, 0}, []int64{s.Gen, s.LastSeq, s.DoneSeq, s.WantSeq, s.CtlSeq})
	require.Equal(t, m.RunID, s.RunID)
	require.Empty(t, s.Owner)
	require.False(t, s.QueuedAt.IsZero())

	r := e.run(t, m.RunID)
	require.Equal(t, store.RunQueued, r.State)
	require.Equal(t, c.skey, r.SKey)
	require.Equal(t, m.SessionID, r.SessionID)
	require.Equal(t, agent, r.AgentID)
	require.Equal(t, []int64{1, 1, 0}, []int64{r.FirstGen, r.LastGen, int64(r.Attempts)})
	require.False(t, r.CreatedAt.IsZero())
	require.True(t, r.StartedAt.IsZero())
	require.True(t, r.EndedAt.IsZero())
}

func admitIdle(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1")
	require.Equal(t, int64(2), e.session(t, c).Gen)

	m := c.user("m2")
	require.Equal(t, store.Admitted{Seq: 2, Gen: 3, State: store.Queued, RunID: m.RunID, Created: true}, e.admitOne(t, m))
	require.Equal(t, int64(3), e.run(t, m.RunID).FirstGen)
}

func admitQueued(t *testing.T, e *env) {
	c := newChat("a")
	first := e.admitOne(t, c.user("m1"))
	m := c.user("m2")
	require.Equal(t, store.Admitted{Seq: 2, Gen: 1, State: store.Queued, RunID: first.RunID}, e.admitOne(t, m))
	require.Equal(t, int64(2), e.session(t, c).WantSeq)
	_, err := e.Store.Run(t.Context(), m.RunID)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func admitRunning(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	require.Equal(t,
		store.Admitted{Seq: 2, Gen: 1, State: store.Running, RunID: run.RunID, Owner: worker},
		e.admitOne(t, c.user("m2")))
}

func admitKeepsSession(t *testing.T, e *env) {
	c := newChat("a")
	first := c.user("m1")
	e.admitOne(t, first)
	other := c.user("m2")
	other.AgentID, other.RunClass = "another", "batch"
	e.admitOne(t, other)
	s := e.session(t, c)
	require.Equal(t, []string{agent, runClass}, []string{s.AgentID, s.RunClass})
	require.Equal(t, first.SessionID, s.SessionID)
}

func admitDuplicate(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.user("m1"))
	before := e.session(t, c)
	require.Equal(t, store.Admitted{Duplicate: true}, e.admitOne(t, c.user("m1")))
	require.Equal(t, before, e.session(t, c))

	got := e.admit(t, c.users("m1", "m2")...)
	require.True(t, got[0].Duplicate)
	require.Equal(t, int64(2), got[1].Seq, "a duplicate uses up no number")
}

func admitDuplicateInBatch(t *testing.T, e *env) {
	c := newChat("a")
	got := e.admit(t, c.users("m1", "m1", "m2", "m1")...)
	require.Equal(t, []bool{false, true, false, true},
		[]bool{got[0].Duplicate, got[1].Duplicate, got[2].Duplicate, got[3].Duplicate})
	require.Equal(t, []int64{1, 2}, []int64{got[0].Seq, got[2].Seq})
	require.Equal(t, int64(2), e.session(t, c).LastSeq)
}

func admitUIDPerSession(t *testing.T, e *env) {
	got := e.admit(t, newChat("a").user("m1"), newChat("b").user("m1"))
	require.True(t, got[0].Created)
	require.True(t, got[1].Created)
}

func admitOrder(t *testing.T, e *env) {
	a, b := newChat("a"), newChat("b")
	got := e.admit(t, a.user("a1"), b.user("b1"), a.command("a2"), a.user("a3"), b.user("b2"), a.user("a4"))
	seqs := make([]int64, len(got))
	for i, g := range got {
		seqs[i] = g.Seq
	}
	require.Equal(t, []int64{1, 1, 2, 3, 2, 4}, seqs)

	var order []string
	for _, row := range e.claim(t, a, worker).Inbox {
		order = append(order, textOf(t, row.Body))
	}
	require.Equal(t, []string{"a1", "a2", "a3", "a4"}, order)
}

func admitManySessions(t *testing.T, e *env) {
	const n = 150
	var msgs []store.AdmitMessage
	for _, name := range uids("chat", n) {
		msgs = append(msgs, newChat(name).users("m1", "m2")...)
	}
	for i, got := range e.admit(t, msgs...) {
		require.Equal(t, int64(i%2+1), got.Seq)
		require.Equal(t, i%2 == 0, got.Created)
		require.Equal(t, msgs[i-i%2].RunID, got.RunID)
	}
}

func admitCovered(t *testing.T, e *env) {
	c := newChat("a")
	require.Equal(t, store.Admitted{Seq: 1, State: store.Idle}, e.admitOne(t, c.row("m1", store.KindRefused)))
	s := e.session(t, c)
	require.Equal(t, []int64{0, 1, 0}, []int64{s.Gen, s.LastSeq, s.WantSeq})
	require.Equal(t, uuid.Nil, s.RunID)

	got := e.admitOne(t, c.user("m2"))
	require.Equal(t, []int64{2, 1}, []int64{got.Seq, got.Gen})
	require.Len(t, e.claim(t, c, worker).Inbox, 2, "the range of the run holds the covered row")
}

func admitSteer(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	steer := c.row("m2", store.KindSteer)
	steer.Steer, steer.Wakes, steer.WantsRun = true, true, true
	got := e.admitOne(t, steer)
	require.Equal(t, uuid.Nil, got.StopRun)
	s := e.session(t, c)
	require.Equal(t, []int64{2, 2, 2}, []int64{s.CtlSeq, s.WakeSeq, s.WantSeq})
	require.Equal(t, store.Signals{LastSeq: 2, CtlSeq: 2}, e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen}))
}

func noticeFirst(t *testing.T, e *env) {
	c := newChat("a")
	require.Equal(t, store.Admitted{Seq: 1, State: store.Idle, OutSeq: 1}, e.admitOne(t, c.command("m1")))
	require.Equal(t, int64(1), e.session(t, c).OutSeq)

	d, ok := e.deliver(t, sender, store.DeliveryClaim{SKey: c.skey, OutSeq: 1})
	require.True(t, ok)
	require.Equal(t, "m1:command", d.DKey)
	require.Equal(t, uuid.Nil, d.RunID)
	require.Equal(t, "telegram", d.Platform)
	require.JSONEq(t, `{"text":"chat"}`, string(d.Target))
	require.JSONEq(t, `{"text":"notice m1"}`, string(d.Parts))
	require.Equal(t, trace("m1"), d.Traceparent)
}

func noticeNumbers(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1", push("answer"))
	require.Equal(t, store.Admitted{Seq: 2, Gen: 2, State: store.Idle, OutSeq: 2}, e.admitOne(t, c.command("m2")))

	run := e.start(t, c, "m3")
	require.Equal(t, int64(2), run.OutSeq)
	got := e.admit(t, c.command("m4"), c.command("m5"))
	require.Equal(t, []int64{3, 4}, []int64{got[0].OutSeq, got[1].OutSeq})
	require.Equal(t, store.Running, got[1].State)
	require.Equal(t, int64(5), e.finish(t, done(run, 5, push("answer"))).FirstOut)
	require.Equal(t, store.Idle, e.session(t, c).State, "commands want no run")
}

func noticeDKey(t *testing.T, e *env) {
	c := newChat("a")
	m := c.command("m1")
	m.Notice.DKey = "m1:busy"
	e.admitOne(t, m)
	d, ok := e.deliver(t, sender, store.DeliveryClaim{SKey: c.skey, OutSeq: 1})
	require.True(t, ok)
	require.Equal(t, "m1:busy", d.DKey)
	require.JSONEq(t, string(m.Notice.Parts), string(e.submission(t, c, "m1").Notice))
}

func noticeRead(t *testing.T, e *env) {
	c := newChat("a")
	m := c.command("m1")
	m.Notice.Read = true
	require.Equal(t, int64(1), e.admitOne(t, m).OutSeq)
	s := e.session(t, c)
	require.Equal(t, []int64{1, 1}, []int64{s.OutSeq, s.OutSent})
	_, ok := e.deliver(t, sender, store.DeliveryClaim{SKey: c.skey, OutSeq: 1})
	require.False(t, ok, "nobody sends it")

	e.admitOne(t, c.command("m2"))
	_, ok = e.deliver(t, sender, store.DeliveryClaim{SKey: c.skey, OutSeq: 2})
	require.True(t, ok, "the row behind it is the next one")
}

func noticeOnce(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.command("m1"))
	require.Equal(t, store.Admitted{Duplicate: true}, e.admitOne(t, c.command("m1")))
	require.Equal(t, int64(1), e.session(t, c).OutSeq)
}

func deadLetters(t *testing.T, e *env) {
	e.attach(t, 10, 3)
	dead := store.DeadLetter{ID: newID(), Kind: "ingress", Ref: "ING_3:11", Reason: "undecodable", Payload: text("raw")}
	_, err := e.Store.Admit(t.Context(), store.Admission{
		Offsets: []store.OffsetMove{{Partition: 3, From: 10, To: 11}},
		Dead:    []store.DeadLetter{dead},
	})
	require.NoError(t, err)
	got := e.letters(t)
	require.Len(t, got, 1)
	require.JSONEq(t, string(dead.Payload), string(got[0].Payload))
	got[0].Payload = dead.Payload
	require.Equal(t, dead, got[0].DeadLetter)
	require.Equal(t, int64(11), e.offset(t, 3).LastSeq)
}

// poisons are messages that cannot be stored, by reason.
func poisons(c chat) map[string]store.AdmitMessage {
	out := map[string]store.AdmitMessage{}
	for name, body := range map[string]string{
		"invalid JSON":          `{"text":`,
		"text behind JSON":      `{} {}`,
		"NUL escape":            `{"text":"a\u0000b"}`,
		"NUL escape in a key":   `{"\u0000":1}`,
		"lone surrogate":        `{"text":"\ud83d"}`,
		"invalid UTF-8 in JSON": "{\"text\":\"\xff\"}",
	} {
		m := c.user("bad")
		m.Body = json.RawMessage(body)
		out[name] = m
	}
	for name, change := range map[string]func(*store.AdmitMessage){
		"NUL in uid":               func(m *store.AdmitMessage) { m.UID = "a\x00b" },
		"invalid UTF-8 in group":   func(m *store.AdmitMessage) { m.Group = "\xc3" },
		"NUL in traceparent":       func(m *store.AdmitMessage) { m.Traceparent = "\x00" },
		"NUL escape in the notice": func(m *store.AdmitMessage) { m.Notice = &store.NewReply{Parts: json.RawMessage(`["\u0000"]`)} },
	} {
		m := c.user("bad")
		change(&m)
		out[name] = m
	}
	return out
}

func admitPoison(t *testing.T, e *env) {
	e.attach(t, 10, 3)
	a, b := newChat("a"), newChat("b")
	e.admitOne(t, a.user("m1"))
	before := e.session(t, a)
	for name, bad := range poisons(a) {
		_, err := e.Store.Admit(t.Context(), store.Admission{
			Offsets:  []store.OffsetMove{{Partition: 3, From: 10, To: 14, UID: "bad"}},
			Messages: []store.AdmitMessage{a.user("m2"), b.user("m1"), bad, a.user("m3")},
			Dead:     []store.DeadLetter{{ID: newID(), Kind: "ingress", Ref: "r", Reason: "x"}},
		})
		require.ErrorIs(t, err, store.ErrRejected, name)
		require.Equal(t, before, e.session(t, a), name)
	}
	e.noSession(t, b)
	require.Empty(t, e.letters(t))
	require.Equal(t, int64(10), e.offset(t, 3).LastSeq)
}

func admitHarmless(t *testing.T, e *env) {
	c := newChat("a")
	for i, body := range []string{`{"text":"a\\u0000b"}`, `{"text":"\ud83d\ude00 \u00e4 \\"}`, `{"text":"ü"}`, `[]`} {
		m := c.user(uids("m", 4)[i])
		m.Body = json.RawMessage(body)
		e.admitOne(t, m)
		require.JSONEq(t, body, string(e.submission(t, c, m.UID).Body))
	}
}

func admitEndedContext(t *testing.T, e *env) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newChat("a")
	_, err := e.Store.Admit(ctx, store.Admission{Messages: c.users("m1")})
	require.ErrorIs(t, err, store.ErrUnavailable)
	e.noSession(t, c)
}
