package storetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func replyCases() []testCase {
	return []testCase{
		{"reply of a checkpoint is delivered while the run goes on", checkpointReply},
		{"reply of a checkpoint that is repeated is written once", checkpointReplyOnce},
		{"reply of a fenced checkpoint is not written", checkpointReplyFenced},
		{"reply without a dkey of its own is rejected", checkpointReplyUnnamed},
		{"replies of several runs in one call are numbered by session", checkpointReplyBatch},
		{"reply that cannot be delivered leaves a dead letter", deadDelivery},
		{"dead letter of a settled reply is not written", deadDeliverySettled},
		{"dead reply without an id for its letter is rejected", deadDeliveryUnnamed},
		{"settled rows behind a settled position are passed over", gapSettled},
		{"replies that are read and wait behind others are passed over", gapRead},
		{"gaps keep to the partitions and the limit", gapPartitions},
		{"redelivery is written once", redeliver},
		{"redelivery to an unknown session is not found", redeliverUnknown},
		{"submission tells that a newer message has replaced it", submissionSuperseded},
	}
}

func named(dkey, s string) store.NewReply {
	r := push(s)
	r.DKey = dkey
	return r
}

func checkpointReply(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.command("m0"))
	run := e.start(t, c, "m1")
	got := e.tryCheckpoint(t, store.Checkpoint{
		Fence: run.Fence, RunGen: run.FirstGen, Replies: []store.NewReply{named("k1", "one"), named("k2", "two")},
	})
	require.Equal(t, store.CheckpointResult{Signals: store.Signals{LastSeq: 2}, FirstOut: 2}, got)
	require.Equal(t, int64(3), e.session(t, c).OutSeq)
	d := e.requireDeliverable(t, sender, c.outAfter(2, 1), true, "before the run has ended")
	require.Equal(t, []any{"k1", run.RunID, "one", trace("m1")}, []any{d.DKey, d.RunID, textOf(t, d.Parts), d.Traceparent})
	require.Equal(t, int64(4), e.finish(t, done(run, 2, push("answer"))).FirstOut)
	replies := e.replies(t, run.RunID)
	require.Equal(t, []string{"k1", "k2", run.RunID.String() + ":1"}, []string{replies[0].DKey, replies[1].DKey, replies[2].DKey})
	e.Advance(t, 4*time.Second)
	require.Len(t, e.due(t, 10), 3, "all but the one that is being sent")
}

func checkpointReplyOnce(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	cp := store.Checkpoint{Fence: run.Fence, RunGen: 1, Replies: []store.NewReply{named("k1", "one")}}
	require.Equal(t, int64(1), e.tryCheckpoint(t, cp).FirstOut)
	again := e.tryCheckpoint(t, cp)
	require.NoError(t, again.Err)
	require.Zero(t, again.FirstOut)
	require.Equal(t, int64(1), e.session(t, c).OutSeq, "no number is used up")
	cp.Replies = append(cp.Replies, named("k2", "two"))
	require.Equal(t, int64(2), e.tryCheckpoint(t, cp).FirstOut)
	require.Len(t, e.replies(t, run.RunID), 2)
}

func checkpointReplyFenced(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.takeOver(t, c)
	got := e.tryCheckpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: 1, Replies: []store.NewReply{named("k1", "one")}})
	require.ErrorIs(t, got.Err, store.ErrFenced)
	require.Zero(t, got.FirstOut)
	require.Zero(t, e.session(t, c).OutSeq)
	require.Empty(t, e.replies(t, run.RunID))
}

func checkpointReplyUnnamed(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	_, err := e.Store.Checkpoint(t.Context(), []store.Checkpoint{{
		Fence: run.Fence, RunGen: 1, Messages: []store.Message{said(1, "user", "m1", 1)}, Replies: []store.NewReply{push("one")},
	}})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Empty(t, e.history(t, c, 10))
	require.Zero(t, e.session(t, c).OutSeq)
}

func checkpointReplyBatch(t *testing.T, e *env) {
	a, b := newChat("a"), newChat("b")
	e.admitOne(t, b.command("m0"))
	one, two := e.start(t, a, "m1"), e.start(t, b, "m1")
	got, err := e.Store.Checkpoint(t.Context(), []store.Checkpoint{
		{Fence: one.Fence, RunGen: one.FirstGen, Replies: []store.NewReply{named("k", "one")}},
		{Fence: two.Fence, RunGen: two.FirstGen, Replies: []store.NewReply{named("k", "two")}},
	})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, []int64{got[0].FirstOut, got[1].FirstOut})
}

func deadDelivery(t *testing.T, e *env) {
	c := newChat("a")
	runID := e.answer(t, c, "m1", push("1"), push("2"), push("3"))
	m := undeliverable(c, 2)
	require.Equal(t, []store.Marked{{SKey: c.skey, OutSeq: 3, OutSent: 2}}, e.mark(t, sent(c, 1), m))
	got := e.letters(t)
	require.Len(t, got, 1)
	require.Equal(t,
		store.DeadLetter{ID: m.LetterID, Kind: store.DeadKindDelivery, Ref: fmt.Sprintf("%s/2", c.skey), Reason: "chat not found", Payload: got[0].Payload},
		got[0].DeadLetter)
	var payload store.DeadDelivery
	require.NoError(t, json.Unmarshal(got[0].Payload, &payload))
	require.JSONEq(t, string(text("chat")), string(payload.Target))
	require.JSONEq(t, string(text("2")), string(payload.Parts))
	payload.Target, payload.Parts = nil, nil
	require.Equal(t, store.DeadDelivery{SKey: c.skey, OutSeq: 2, DKey: runID.String() + ":2", Platform: "telegram"}, payload)
	require.False(t, got[0].CreatedAt.IsZero())
}

func deadDeliverySettled(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 2)
	e.mark(t, sent(c, 1))
	require.Empty(t, e.mark(t, undeliverable(c, 1), undeliverable(newChat("b"), 1)))
	require.Empty(t, e.letters(t))
	m := undeliverable(c, 2)
	require.Len(t, e.mark(t, m), 1)
	require.Empty(t, e.mark(t, m), "repeated")
	require.Empty(t, e.mark(t, undeliverable(c, 2)))
	require.Len(t, e.letters(t), 1)
}

func deadDeliveryUnnamed(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	m := undeliverable(c, 1)
	m.LetterID = uuid.Nil
	_, err := e.Store.MarkDeliveries(t.Context(), []store.Mark{m})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Zero(t, e.session(t, c).OutSent)
	require.Empty(t, e.letters(t))
}

func (e *env) gaps(t tb) []store.Doorbell {
	t.Helper()
	got, err := e.Store.SettleGaps(t.Context(), allPartitions(), 100)
	require.NoError(t, err)
	return got
}

func gapSettled(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 4)
	require.Empty(t, e.gaps(t), "a row that waits is no gap")
	e.mark(t, sent(c, 2))
	e.mark(t, undeliverable(c, 3))
	require.Empty(t, e.gaps(t))
	require.Len(t, e.mark(t, sent(c, 1)), 1)
	require.Equal(t, int64(1), e.session(t, c).OutSent)
	require.Equal(t, []store.Doorbell{{SKey: c.skey, OutSeq: 4, Platform: "telegram"}}, e.gaps(t))
	require.Equal(t, int64(3), e.session(t, c).OutSent)
	require.Empty(t, e.gaps(t))
	require.Len(t, e.mark(t, sent(c, 4)), 1)

	all := e.outgoing(t, "b", 2)
	e.mark(t, sent(all, 2))
	e.mark(t, sent(all, 1))
	require.Empty(t, e.gaps(t), "no row is left to ring")
	require.Equal(t, int64(2), e.session(t, all).OutSent)
}

func gapRead(t *testing.T, e *env) {
	c := newChat("a")
	e.answer(t, c, "m1", push("1"), readable("2"), push("3"))
	require.Empty(t, e.gaps(t))
	require.Equal(t, []store.Marked{{SKey: c.skey, OutSeq: 3, OutSent: 1}}, e.mark(t, sent(c, 1)))
	require.Equal(t, []store.Doorbell{{SKey: c.skey, OutSeq: 3, Platform: "telegram"}}, e.gaps(t))
	e.requireDeliverable(t, sender, c.out(3), true, "it is next now")
}

func gapPartitions(t *testing.T, e *env) {
	var chats []chat
	for _, name := range uids("chat", 4) {
		c := e.outgoing(t, name, 3)
		e.mark(t, sent(c, 2))
		e.mark(t, sent(c, 1))
		chats = append(chats, c)
	}
	got, err := e.Store.SettleGaps(t.Context(), nil, 100)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = e.Store.SettleGaps(t.Context(), []int{session.Partition(chats[0].skey)}, 1)
	require.NoError(t, err)
	require.Len(t, got, 1)
	rung := len(got)
	for len(got) > 0 {
		got, err = e.Store.SettleGaps(t.Context(), allPartitions(), 2)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), 2)
		rung += len(got)
	}
	require.Equal(t, len(chats), rung)
	for _, c := range chats {
		require.Equal(t, int64(2), e.session(t, c).OutSent)
	}
}

func redeliver(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.mark(t, undeliverable(c, 1))
	r := named("again#r1", "answer")
	bell := store.Doorbell{SKey: c.skey, OutSeq: 2, Platform: "telegram"}
	for range 2 {
		got, err := e.Store.Redeliver(t.Context(), c.skey, r)
		require.NoError(t, err)
		require.Equal(t, bell, got)
	}
	require.Equal(t, int64(2), e.session(t, c).OutSeq)
	d := e.requireDeliverable(t, sender, c.out(2), true, "it is sent once more")
	require.Equal(t, []any{"again#r1", uuid.Nil, "answer"}, []any{d.DKey, d.RunID, textOf(t, d.Parts)})
	bell.Attempts = 1
	got, err := e.Store.Redeliver(t.Context(), c.skey, r)
	require.NoError(t, err)
	require.Equal(t, bell, got, "being sent")
}

func redeliverUnknown(t *testing.T, e *env) {
	_, err := e.Store.Redeliver(t.Context(), newChat("a").skey, named("k", "answer"))
	require.ErrorIs(t, err, store.ErrNotFound)
	c := e.outgoing(t, "a", 1)
	bad := named("k", "answer")
	bad.Parts = json.RawMessage(`"\u0000"`)
	_, err = e.Store.Redeliver(t.Context(), c.skey, bad)
	require.ErrorIs(t, err, store.ErrRejected)
	require.Equal(t, int64(1), e.session(t, c).OutSeq)
}

func submissionSuperseded(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admit(t, c.users("m2", "m3")...)
	e.finish(t, done(run, 1))
	next := e.claim(t, c, worker)
	e.checkpoint(t, store.Checkpoint{Fence: next.Fence, RunGen: next.FirstGen, Messages: []store.Message{
		said(1, store.RoleSuperseded, "m2", 2), said(2, "user", "m3", 3),
	}})
	require.True(t, e.submission(t, c, "m2").Superseded, "as soon as the worker has stored it")
	e.finish(t, done(next, 3))
	for uid, want := range map[string]bool{"m1": false, "m2": true, "m3": false} {
		got := e.submission(t, c, uid)
		require.Equal(t, want, got.Superseded, uid)
		require.Equal(t, store.RunDone, got.Run.State, uid)
	}
	require.Equal(t, next.RunID, e.submission(t, c, "m2").Run.ID)
}
