package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// claimTTL is how long a claim of a delivery lasts.
const claimTTL = 60 * time.Second

func outboxCases() []testCase {
	return []testCase{
		{"claim returns the row", deliveryClaimed},
		{"only the next row of a session can be claimed", deliveryOrder},
		{"row behind one that is sent but not marked", deliverySentHint},
		{"claimed row cannot be claimed again", deliveryTwice},
		{"many senders ask for one row: one gets it", deliveryRace},
		{"claims of many sessions in one call", deliveryMany},
		{"row that does not exist is not returned", deliveryUnknown},
		{"expired claim counts as an attempt that may have reached the platform", deliveryExpired},
		{"plan is kept and progress replaced", partRecorded},
		{"recorded part extends the claim", partExtends},
		{"recorded part is fenced", partFenced},
		{"retry gives the row back and counts maybe", deliveryRetried},
		{"retry is fenced", retryFenced},
		{"mark settles the row and tells that a later one waits", markSettles},
		{"marks of one session in one call", markSeveral},
		{"marks of many sessions in one call", markMany},
		{"marks with a gap move nothing", markGap},
		{"mark repeated is skipped", markRepeated},
		{"mark asks for no claim", markUnclaimed},
		{"unknown and dead settle a row too", markStates},
		{"poison is rejected and changes nothing", outboxPoison},
	}
}

// outgoing returns a chat with n pending rows, "out-1" to "out-n", of one run.
func (e *env) outgoing(t tb, name string, n int) chat {
	t.Helper()
	c := newChat(name)
	replies := make([]store.NewReply, n)
	for i := range replies {
		replies[i] = push(uids("out", n)[i])
	}
	e.answer(t, c, "m1", replies...)
	return c
}

// out claims a row of the chat, outAfter one behind a row that its sender has sent and not marked.
func (c chat) out(seq int64) store.DeliveryClaim {
	return store.DeliveryClaim{SKey: c.skey, OutSeq: seq}
}

func (c chat) outAfter(seq, sent int64) store.DeliveryClaim {
	return store.DeliveryClaim{SKey: c.skey, OutSeq: seq, Sent: sent}
}

func (e *env) requireDeliverable(t tb, from string, claim store.DeliveryClaim, want bool, why string) store.Delivery {
	t.Helper()
	d, ok := e.deliver(t, from, claim)
	require.Equal(t, want, ok, why)
	return d
}

func deliveryClaimed(t *testing.T, e *env) {
	c := newChat("a")
	runID := e.answer(t, c, "m1", push("answer"))
	d := e.requireDeliverable(t, sender, c.out(1), true, "first row")
	require.False(t, d.CreatedAt.IsZero())
	require.JSONEq(t, `{"text":"chat"}`, string(d.Target))
	require.JSONEq(t, `{"text":"answer"}`, string(d.Parts))
	d.CreatedAt, d.Target, d.Parts = time.Time{}, nil, nil
	require.Equal(t, store.Delivery{
		SKey: c.skey, OutSeq: 1, Tenant: tenant, DKey: runID.String() + ":1", RunID: runID, Platform: "telegram", Attempts: 1,
		Traceparent: trace("m1"),
	}, d)
}

func deliveryOrder(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 3)
	e.requireDeliverable(t, sender, c.out(2), false, "1 is before it")
	e.requireDeliverable(t, sender, c.out(1), true, "it is the next one")
	e.requireDeliverable(t, sender, c.out(2), false, "1 is only claimed")
	e.mark(t, sent(c, 1))
	e.requireDeliverable(t, sender, c.out(3), false, "2 is before it")
	e.requireDeliverable(t, sender, c.out(2), true, "1 is settled")
	e.requireDeliverable(t, sender, c.out(1), false, "settled")
}

func deliverySentHint(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 3)
	e.requireDeliverable(t, sender, c.outAfter(2, 0), false, "nothing is sent")
	e.requireDeliverable(t, sender, c.out(1), true, "first row")
	e.requireDeliverable(t, sender, c.outAfter(3, 1), false, "2 is between them")
	e.requireDeliverable(t, sender, c.outAfter(2, 1), true, "1 is sent, not marked")
	e.mark(t, sent(c, 1), sent(c, 2))
	e.requireDeliverable(t, sender, c.outAfter(3, 1), true, "an old hint does not stand in the way")
}

func deliveryTwice(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.requireDeliverable(t, "egress-1/a", c.out(1), true, "first claim")
	e.requireDeliverable(t, "egress-2/a", c.out(1), false, "another sends it")
	e.requireDeliverable(t, "egress-1/a", c.out(1), false, "not even its sender")
	e.Advance(t, claimTTL/2)
	e.requireDeliverable(t, "egress-2/a", c.out(1), false, "the claim lasts")
}

func deliveryRace(t *testing.T, e *env) {
	const senders, sessions = 12, 10
	claims := make([]store.DeliveryClaim, sessions)
	for i, name := range uids("chat", sessions) {
		claims[i] = e.outgoing(t, name, 1).out(1)
	}
	results := make([][]store.Delivery, senders)
	var g errgroup.Group
	for i, from := range uids("egress/nonce", senders) {
		g.Go(func() (err error) {
			results[i], err = e.Store.ClaimDeliveries(t.Context(), from, claims)
			return err
		})
	}
	require.NoError(t, g.Wait())
	winners := map[string]int{}
	for _, r := range results {
		for _, d := range r {
			winners[d.SKey]++
			require.Equal(t, []int{1, 0}, []int{d.Attempts, d.Maybe})
		}
	}
	require.Len(t, winners, sessions)
	for _, n := range winners {
		require.Equal(t, 1, n)
	}
}

func deliveryMany(t *testing.T, e *env) {
	const n = 60
	var claims []store.DeliveryClaim
	for i, name := range uids("chat", n) {
		c := e.outgoing(t, name, 2)
		claims = append(claims, c.out(int64(1+i%2)))
	}
	got, err := e.Store.ClaimDeliveries(t.Context(), sender, claims)
	require.NoError(t, err)
	require.Len(t, got, n/2)
	for _, d := range got {
		require.Equal(t, int64(1), d.OutSeq)
		require.Equal(t, "out-000", textOf(t, d.Parts))
	}
}

func deliveryUnknown(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.mark(t, sent(c, 1))
	e.requireDeliverable(t, sender, c.out(2), false, "no such row")
	e.requireDeliverable(t, sender, newChat("b").out(1), false, "no such session")
	e.requireDeliverable(t, sender, c.out(0), false, "no such number")
}

func deliveryExpired(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.requireDeliverable(t, "egress-1/a", c.out(1), true, "first claim")
	for i := 1; i <= 2; i++ {
		e.Advance(t, claimTTL+time.Second)
		d := e.requireDeliverable(t, "egress-2/a", c.out(1), true, "the claim has ended")
		require.Equal(t, []int{i + 1, i}, []int{d.Attempts, d.Maybe})
	}
}

func (e *env) record(t tb, p store.PartSent) error {
	t.Helper()
	return e.Store.RecordPart(t.Context(), p)
}

func partRecorded(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	d := e.requireDeliverable(t, sender, c.out(1), true, "first claim")
	require.Nil(t, d.Plan)
	part := store.PartSent{SKey: c.skey, OutSeq: 1, Sender: sender, Plan: text("plan")}
	require.NoError(t, e.record(t, part))
	part.SentParts, part.PlatformIDs, part.Plan = 1, json.RawMessage(`["p1"]`), text("another plan")
	require.NoError(t, e.record(t, part))
	part.SentParts, part.PlatformIDs, part.Plan = 2, json.RawMessage(`["p1","p2"]`), nil
	require.NoError(t, e.record(t, part))

	e.Advance(t, claimTTL+time.Second)
	d = e.requireDeliverable(t, "egress-2/a", c.out(1), true, "the claim has ended")
	require.Equal(t, "plan", textOf(t, d.Plan), "the first plan is kept")
	require.Equal(t, 2, d.SentParts)
	require.JSONEq(t, `["p1","p2"]`, string(d.PlatformIDs))
	require.Equal(t, []int{2, 1}, []int{d.Attempts, d.Maybe})
}

func partExtends(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.requireDeliverable(t, sender, c.out(1), true, "first claim")
	e.Advance(t, claimTTL/2)
	require.NoError(t, e.record(t, store.PartSent{SKey: c.skey, OutSeq: 1, Sender: sender, SentParts: 1}))
	e.Advance(t, claimTTL*3/4)
	e.requireDeliverable(t, "egress-2/a", c.out(1), false, "the claim was extended")
	e.Advance(t, claimTTL/2)
	e.requireDeliverable(t, "egress-2/a", c.out(1), true, "it has ended")
}

func partFenced(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 2)
	part := store.PartSent{SKey: c.skey, OutSeq: 1, Sender: sender, SentParts: 1}
	require.ErrorIs(t, e.record(t, part), store.ErrFenced, "not claimed")
	e.requireDeliverable(t, sender, c.out(1), true, "first claim")

	other := part
	other.Sender = "egress-2/a"
	require.ErrorIs(t, e.record(t, other), store.ErrFenced, "claimed by another")
	missing := part
	missing.OutSeq = 7
	require.ErrorIs(t, e.record(t, missing), store.ErrFenced, "no such row")

	e.Advance(t, claimTTL+time.Second)
	e.requireDeliverable(t, "egress-2/a", c.out(1), true, "the claim has ended")
	require.ErrorIs(t, e.record(t, part), store.ErrFenced, "taken over")
	require.NoError(t, e.record(t, other))
	e.mark(t, sent(c, 1))
	require.ErrorIs(t, e.record(t, other), store.ErrFenced, "settled")
}

func deliveryRetried(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	for i, step := range []struct {
		maybe bool
		want  int // what earlier attempts have made of Maybe
	}{{false, 0}, {true, 0}, {true, 1}, {false, 2}, {false, 2}} {
		d := e.requireDeliverable(t, sender, c.out(1), true, "given back")
		require.Equal(t, []int{i + 1, step.want}, []int{d.Attempts, d.Maybe})
		require.NoError(t, e.Store.RetryDelivery(t.Context(), c.skey, 1, sender, time.Minute, step.maybe))
	}
}

func retryFenced(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	retry := func(from string) error {
		return e.Store.RetryDelivery(t.Context(), c.skey, 1, from, 0, true)
	}
	require.ErrorIs(t, retry(sender), store.ErrFenced, "not claimed")
	require.ErrorIs(t, retry(""), store.ErrFenced, "nobody's")
	e.requireDeliverable(t, sender, c.out(1), true, "first claim")
	require.ErrorIs(t, retry("egress-2/a"), store.ErrFenced, "claimed by another")
	require.NoError(t, retry(sender))
	require.ErrorIs(t, retry(sender), store.ErrFenced, "given back already")
	e.mark(t, sent(c, 1))
	require.ErrorIs(t, retry(sender), store.ErrFenced, "settled")
}

func markSettles(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 2)
	e.requireDeliverable(t, sender, c.out(1), true, "first row")
	m := sent(c, 1)
	m.PlatformIDs = json.RawMessage(`["p1"]`)
	require.Equal(t, []store.Marked{{SKey: c.skey, OutSeq: 2, OutSent: 1}}, e.mark(t, m), "a later row waits")
	require.Equal(t, int64(1), e.session(t, c).OutSent)
	require.Equal(t, []store.Marked{{SKey: c.skey, OutSeq: 2, OutSent: 2}}, e.mark(t, sent(c, 2)))
}

func markSeveral(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 4)
	require.Equal(t, []store.Marked{{SKey: c.skey, OutSeq: 4, OutSent: 3}}, e.mark(t, sent(c, 2), sent(c, 1), sent(c, 3)))
	require.Equal(t, int64(3), e.session(t, c).OutSent)
}

func markMany(t *testing.T, e *env) {
	const n = 60
	var marks []store.Mark
	var want []store.Marked
	for _, name := range uids("chat", n) {
		c := e.outgoing(t, name, 2)
		marks = append(marks, sent(c, 1))
		want = append(want, store.Marked{SKey: c.skey, OutSeq: 2, OutSent: 1})
	}
	require.ElementsMatch(t, want, e.mark(t, marks...))
}

func markGap(t *testing.T, e *env) {
	c := newChat("a")
	runID := e.answer(t, c, "m1", push("1"), push("2"), push("3"))
	require.Empty(t, e.mark(t, sent(c, 1), sent(c, 3)))
	require.Zero(t, e.session(t, c).OutSent)
	replies := e.replies(t, runID)
	require.Equal(t, []store.OutState{store.OutSent, store.OutPending, store.OutSent},
		[]store.OutState{replies[0].State, replies[1].State, replies[2].State}, "the rows are settled all the same")

	behind := e.outgoing(t, "b", 2)
	require.Empty(t, e.mark(t, sent(behind, 2)))
	require.Zero(t, e.session(t, behind).OutSent, "row 1 is before it")
}

func markRepeated(t *testing.T, e *env) {
	c := newChat("a")
	runID := e.answer(t, c, "m1", push("1"), push("2"))
	require.Len(t, e.mark(t, sent(c, 1)), 1)
	require.Empty(t, e.mark(t, sent(c, 1)))
	require.Empty(t, e.mark(t, undeliverable(c, 1)))
	require.Equal(t, store.OutSent, e.replies(t, runID)[0].State)
	require.Equal(t, []store.Marked{{SKey: c.skey, OutSeq: 2, OutSent: 2}}, e.mark(t, sent(c, 1), sent(c, 2), sent(c, 2)))
	require.Empty(t, e.mark(t, sent(c, 9), sent(newChat("b"), 1)), "rows that do not exist")
}

func markUnclaimed(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.requireDeliverable(t, "egress-1/a", c.out(1), true, "first claim")
	e.Advance(t, claimTTL+time.Second)
	e.requireDeliverable(t, "egress-2/a", c.out(1), true, "taken over")
	require.Len(t, e.mark(t, sent(c, 1)), 1, "what was sent was sent")
}

func markStates(t *testing.T, e *env) {
	c := newChat("a")
	runID := e.answer(t, c, "m1", push("1"), push("2"))
	require.Len(t, e.mark(t, store.Mark{SKey: c.skey, OutSeq: 1, State: store.OutUnknown}), 1)
	require.Len(t, e.mark(t, undeliverable(c, 2)), 1)
	replies := e.replies(t, runID)
	require.Equal(t, []store.OutState{store.OutUnknown, store.OutDead}, []store.OutState{replies[0].State, replies[1].State})
	require.Equal(t, int64(2), e.session(t, c).OutSent)
}

func outboxPoison(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.requireDeliverable(t, sender, c.out(1), true, "first claim")
	bad := json.RawMessage(`["\u0000"]`)
	require.ErrorIs(t, e.record(t, store.PartSent{SKey: c.skey, OutSeq: 1, Sender: sender, PlatformIDs: bad}), store.ErrRejected)
	require.ErrorIs(t, e.record(t, store.PartSent{SKey: c.skey, OutSeq: 1, Sender: sender, Plan: bad}), store.ErrRejected)
	_, err := e.Store.MarkDeliveries(t.Context(), []store.Mark{{SKey: c.skey, OutSeq: 1, State: store.OutSent, PlatformIDs: bad}})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Zero(t, e.session(t, c).OutSent)
	require.Len(t, e.mark(t, sent(c, 1)), 1)
}
