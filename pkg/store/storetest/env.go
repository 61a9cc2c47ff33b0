package storetest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	tenant   = "acme"
	agent    = "helper"
	runClass = "chat"
	// worker owns runs where a case has only one worker.
	worker = "worker-1/a"
	sender = "egress-1/a"
)

// tb is what builders need of a test; that of a property has it too.
type tb interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// env is the backend of one case and the builders that cases share. Builders fail the test where the store does not do
// what they say.
type env struct {
	Backend
}

// chat is one session.
type chat struct {
	key, skey string
}

func newChat(name string) chat {
	key := "agent:main:telegram:dm:" + name
	return chat{key: key, skey: session.SKey(tenant, key)}
}

// row is a message that does nothing but be stored.
func (c chat) row(uid string, kind store.InboxKind) store.AdmitMessage {
	return store.AdmitMessage{
		SKey: c.skey, Tenant: tenant, SessionKey: c.key, AgentID: agent, RunClass: runClass,
		UID: uid, Kind: kind, Body: text(uid), Traceparent: trace(uid),
		SessionID: newID(), RunID: newID(),
	}
}

// user is a plain message.
func (c chat) user(uid string) store.AdmitMessage {
	m := c.row(uid, store.KindUser)
	m.WantsRun = true
	return m
}

func (c chat) users(uids ...string) []store.AdmitMessage {
	msgs := make([]store.AdmitMessage, 0, len(uids))
	for _, uid := range uids {
		msgs = append(msgs, c.user(uid))
	}
	return msgs
}

func (c chat) stop(uid string) store.AdmitMessage {
	m := c.row(uid, store.KindStop)
	m.Stop, m.Wakes = true, true
	return m
}

// command is answered by a notice and wants no run.
func (c chat) command(uid string) store.AdmitMessage {
	m := c.row(uid, store.KindCommand)
	n := push("notice " + uid)
	m.Notice = &n
	return m
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// text is a JSON object that holds s.
func text(s string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"text": s})
	if err != nil {
		panic(err) // a map of strings can always be encoded
	}
	return b
}

// trace is a traceparent of its own for each message.
func trace(uid string) string { return "00-" + uid }

// push is a reply that somebody has to send, readable one that its reader fetches.
func push(s string) store.NewReply {
	return store.NewReply{Platform: "telegram", Target: text("chat"), Parts: text(s)}
}

func readable(s string) store.NewReply {
	r := push(s)
	r.Platform, r.Read = "api", true
	return r
}

// said is the n-th message of a run; inboxSeq is 0 if it was not made from an inbox row.
func said(n int, role, s string, inboxSeq int64) store.Message {
	return store.Message{N: n, Role: role, Content: text(s), InboxSeq: inboxSeq}
}

// done ends the run without messages, for the rows up to to.
func done(c store.Claimed, to int64, replies ...store.NewReply) store.Finish {
	return store.Finish{
		Fence: c.Fence, RunGen: c.FirstGen, From: c.DoneSeq + 1, To: to, State: store.RunDone,
		Replies: replies, NextRunID: newID(), NextTraceparent: trace("next"),
	}
}

func cancelled(c store.Claimed, to int64, replies ...store.NewReply) store.Finish {
	f := done(c, to, replies...)
	f.State = store.RunCancelled
	return f
}

// admit admits messages and returns what became of them.
func (e *env) admit(t tb, msgs ...store.AdmitMessage) []store.Admitted {
	t.Helper()
	got, err := e.Store.Admit(t.Context(), store.Admission{Messages: msgs})
	require.NoError(t, err)
	require.Len(t, got, len(msgs))
	for i := range got {
		requireNumbered(t, &msgs[i], &got[i])
	}
	return got
}

// requireNumbered checks what every admission says in the same way, and takes it out, so that a case compares the rest.
func requireNumbered(t tb, m *store.AdmitMessage, got *store.Admitted) {
	t.Helper()
	if got.Duplicate || m.Edit != nil {
		require.Equal(t, []any{store.InboxKind(""), int64(0)}, []any{got.Kind, got.DoneSeq})
		return
	}
	if !m.RejectIfBusy {
		require.Equal(t, m.Kind, got.Kind)
		got.Kind = ""
	}
	require.LessOrEqual(t, got.DoneSeq, got.Seq)
	got.DoneSeq = 0
}

func (e *env) admitOne(t tb, m store.AdmitMessage) store.Admitted {
	t.Helper()
	return e.admit(t, m)[0]
}

// tryClaim claims the run and tells whether it is the owner's now.
func (e *env) tryClaim(t tb, f store.Fence) (store.Claimed, bool) {
	t.Helper()
	got, err := e.Store.Claim(t.Context(), []store.ClaimRequest{{Fence: f}})
	require.NoError(t, err)
	if len(got) == 0 {
		return store.Claimed{}, false
	}
	require.Len(t, got, 1)
	require.Equal(t, f, got[0].Fence)
	return got[0], true
}

// claim claims the session's queued run for owner.
func (e *env) claim(t tb, c chat, owner string) store.Claimed {
	t.Helper()
	s := e.session(t, c)
	require.Equal(t, store.Queued, s.State)
	got, ok := e.tryClaim(t, store.Fence{SKey: c.skey, Gen: s.Gen, RunID: s.RunID, Owner: owner})
	require.True(t, ok, "a queued run can be claimed")
	return got
}

// start admits a plain message to an idle session and claims the run that it makes.
func (e *env) start(t tb, c chat, uid string) store.Claimed {
	t.Helper()
	a := e.admitOne(t, c.user(uid))
	require.True(t, a.Created)
	return e.claim(t, c, worker)
}

func (e *env) checkpoint(t tb, cp store.Checkpoint) store.Signals {
	t.Helper()
	got := e.tryCheckpoint(t, cp)
	require.NoError(t, got.Err)
	return got.Signals
}

func (e *env) tryCheckpoint(t tb, cp store.Checkpoint) store.CheckpointResult {
	t.Helper()
	got, err := e.Store.Checkpoint(t.Context(), []store.Checkpoint{cp})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

func (e *env) tryFinish(t tb, f store.Finish) store.FinishResult {
	t.Helper()
	got, err := e.Store.Finish(t.Context(), []store.Finish{f})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

// finish ends a run that is still its worker's.
func (e *env) finish(t tb, f store.Finish) store.FinishResult {
	t.Helper()
	got := e.tryFinish(t, f)
	require.Equal(t, store.Finished, got.Outcome)
	require.True(t, got.Known)
	return got
}

// answer runs one message from admission to replies and returns its run.
func (e *env) answer(t tb, c chat, uid string, replies ...store.NewReply) uuid.UUID {
	t.Helper()
	run := e.start(t, c, uid)
	e.finish(t, done(run, run.LastSeq, replies...))
	return run.RunID
}

// takeOver is T6 of a run whose worker is thought to be dead.
func (e *env) takeOver(t tb, c chat) store.TakenOver {
	t.Helper()
	s := e.session(t, c)
	got, err := e.Store.Takeover(t.Context(), store.Takeover{SKey: c.skey, Gen: s.Gen, Owner: s.Owner})
	require.NoError(t, err)
	return got
}

// suspension is T7 of a run that has seen all that has come.
func suspension(c store.Claimed) store.Suspension {
	return store.Suspension{
		Checkpoint: store.Checkpoint{Fence: c.Fence, RunGen: c.FirstGen}, Seen: c.LastSeq, Kind: store.WaitApproval,
	}
}

func (e *env) trySuspend(t tb, s store.Suspension) store.SuspendResult {
	t.Helper()
	got, err := e.Store.Suspend(t.Context(), []store.Suspension{s})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

// suspend lets the run wait for an answer, without a time.
func (e *env) suspend(t tb, c store.Claimed) {
	t.Helper()
	got := e.trySuspend(t, suspension(c))
	require.Equal(t, store.SuspendResult{Gen: c.Gen + 1, State: store.Waiting}, got)
}

func (e *env) pause(t tb, c chat) store.Session {
	t.Helper()
	s, err := e.Store.Pause(t.Context(), c.skey)
	require.NoError(t, err)
	return s
}

func (e *env) unpause(t tb, c chat) store.Unpaused {
	t.Helper()
	u, err := e.Store.Unpause(t.Context(), c.skey, newID())
	require.NoError(t, err)
	return u
}

func (e *env) conversations(t tb, c chat) []store.Conversation {
	t.Helper()
	got, err := e.Store.Conversations(t.Context(), c.skey, 100)
	require.NoError(t, err)
	return got
}

// requireConversations checks the conversations of a session, newest first: the first one is current.
func requireConversations(t tb, got []store.Conversation, ids ...uuid.UUID) {
	t.Helper()
	var have []uuid.UUID
	for i, c := range got {
		have = append(have, c.ID)
		require.Equal(t, i == 0, c.EndedAt.IsZero(), "only the newest goes on")
	}
	require.Equal(t, ids, have)
}

func (e *env) toolCalls(t tb, runID uuid.UUID) []store.ToolCall {
	t.Helper()
	got, err := e.Store.RunToolCalls(t.Context(), runID)
	require.NoError(t, err)
	return got
}

// letters returns all dead letters with their payloads, newest first.
func (e *env) letters(t tb) []store.StoredLetter {
	t.Helper()
	got, err := e.Store.DeadLetters(t.Context(), store.LetterQuery{Limit: 100})
	require.NoError(t, err)
	for i := range got {
		require.Empty(t, got[i].Payload, "a list has no payloads")
		got[i], err = e.Store.DeadLetter(t.Context(), got[i].ID)
		require.NoError(t, err)
	}
	return got
}

func (e *env) session(t tb, c chat) store.Session {
	t.Helper()
	s, err := e.Store.Session(t.Context(), c.skey)
	require.NoError(t, err)
	return s
}

func (e *env) noSession(t tb, c chat) {
	t.Helper()
	_, err := e.Store.Session(t.Context(), c.skey)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func (e *env) run(t tb, id uuid.UUID) store.Run {
	t.Helper()
	r, err := e.Store.Run(t.Context(), id)
	require.NoError(t, err)
	return r
}

func (e *env) replies(t tb, runID uuid.UUID) []store.Reply {
	t.Helper()
	r, err := e.Store.RunReplies(t.Context(), runID)
	require.NoError(t, err)
	return r
}

func (e *env) submission(t tb, c chat, uid string) store.Submission {
	t.Helper()
	s, err := e.Store.Submission(t.Context(), c.skey, uid)
	require.NoError(t, err)
	return s
}

func (e *env) history(t tb, c chat, limit int) []store.Message {
	t.Helper()
	h, err := e.Store.History(t.Context(), c.skey, e.session(t, c).SessionID, limit)
	require.NoError(t, err)
	return h
}

// deliver claims the row and tells whether it is the sender's now.
func (e *env) deliver(t tb, from string, claim store.DeliveryClaim) (store.Delivery, bool) {
	t.Helper()
	got, err := e.Store.ClaimDeliveries(t.Context(), from, []store.DeliveryClaim{claim})
	require.NoError(t, err)
	if len(got) == 0 {
		return store.Delivery{}, false
	}
	require.Len(t, got, 1)
	require.Equal(t, claim.SKey, got[0].SKey)
	require.Equal(t, claim.OutSeq, got[0].OutSeq)
	return got[0], true
}

func (e *env) mark(t tb, marks ...store.Mark) []store.Marked {
	t.Helper()
	got, err := e.Store.MarkDeliveries(t.Context(), marks)
	require.NoError(t, err)
	return got
}

func sent(c chat, outSeq int64) store.Mark {
	return store.Mark{SKey: c.skey, OutSeq: outSeq, State: store.OutSent}
}

func undeliverable(c chat, outSeq int64) store.Mark {
	return store.Mark{SKey: c.skey, OutSeq: outSeq, State: store.OutDead, Reason: "chat not found", LetterID: newID()}
}

// transcript is the texts of messages, "role: text" each.
func transcript(t tb, msgs []store.Message) []string {
	t.Helper()
	lines := make([]string, 0, len(msgs))
	for _, m := range msgs {
		lines = append(lines, m.Role+": "+textOf(t, m.Content))
	}
	return lines
}

func textOf(t tb, raw json.RawMessage) string {
	t.Helper()
	var v struct {
		Text string `json:"text"`
	}
	require.NoError(t, json.Unmarshal(raw, &v))
	return v.Text
}

func uids(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	return out
}
