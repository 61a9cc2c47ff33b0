package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func itemCases() []testCase {
	return []testCase{
		{"items are known from the message on that they were joined into", itemsKnown},
		{"item keeps the row that it came with first", itemsFirst},
		{"items of a duplicate are not learnt", itemsDuplicate},
		{"items come with commands too", itemsCommand},
		{"item with poison is rejected with its message", itemsPoison},
		{"inbox row is found by its uid and by its items", findRow},
		{"inbox rows behind a number", inboxAfter},
	}
}

// album is a message that was joined from items.
func (c chat) album(uid string, items ...string) store.AdmitMessage {
	m := c.user(uid)
	m.Group, m.Items = uid, items
	return m
}

func (e *env) known(t tb, c chat, uids ...string) []string {
	t.Helper()
	got, err := e.Store.KnownItems(t.Context(), c.skey, uids)
	require.NoError(t, err)
	return got
}

func (e *env) find(t tb, c chat, uid string) store.InboxRow {
	t.Helper()
	got, err := e.Store.FindInbox(t.Context(), c.skey, uid)
	require.NoError(t, err)
	return got
}

func itemsKnown(t *testing.T, e *env) {
	a, b := newChat("a"), newChat("b")
	require.Empty(t, e.known(t, a, "i1", "m1"), "no session")
	require.Empty(t, e.known(t, a))
	got := e.admit(t, a.album("m1", "i1", "i2"), a.user("m2"), b.album("m3", "i3"))
	require.Equal(t, []int64{1, 2, 1}, []int64{got[0].Seq, got[1].Seq, got[2].Seq}, "items use up no number")
	require.Equal(t, []string{"i2", "m2", "i1", "m1"}, e.known(t, a, "i3", "i2", "m2", "i1", "m3", "m1", "none"))
	require.Equal(t, []string{"i3"}, e.known(t, b, "i1", "i3", "m2"), "those of the session")
	require.Empty(t, e.known(t, a))
}

func itemsFirst(t *testing.T, e *env) {
	c := newChat("a")
	e.admit(t, c.album("m1", "i1", "i1"), c.album("m2", "i1", "i2"))
	require.Equal(t, int64(1), e.find(t, c, "i1").Seq)
	require.Equal(t, int64(2), e.find(t, c, "i2").Seq)
}

func itemsDuplicate(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.album("m1", "i1"))
	require.Equal(t, store.Admitted{Duplicate: true}, e.admitOne(t, c.album("m1", "i1", "i2")))
	require.Equal(t, []string{"i1"}, e.known(t, c, "i1", "i2"))
}

func itemsCommand(t *testing.T, e *env) {
	c := newChat("a")
	m, stop := c.reset("m2"), c.stop("m3")
	m.Items, stop.Items = []string{"i1", "i2"}, []string{"i2", "i3"}
	e.admit(t, c.album("m1", "i1"), m, stop)
	for i, uid := range []string{"i1", "i2", "i3"} {
		require.Equal(t, int64(i+1), e.find(t, c, uid).Seq)
	}
	require.Equal(t, store.Admitted{Duplicate: true}, e.admitOne(t, m))
}

func itemsPoison(t *testing.T, e *env) {
	c := newChat("a")
	_, err := e.Store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{c.album("m1", "i1", "a\x00")}})
	require.ErrorIs(t, err, store.ErrRejected)
	e.noSession(t, c)
	require.Empty(t, e.known(t, c, "i1"))
}

func findRow(t *testing.T, e *env) {
	c := newChat("a")
	_, err := e.Store.FindInbox(t.Context(), c.skey, "m1")
	require.ErrorIs(t, err, store.ErrNotFound, "no session")
	m := c.album("m2", "i1", "i2")
	e.admit(t, c.user("m1"), m)
	for _, uid := range []string{"m2", "i1", "i2"} {
		got := e.find(t, c, uid)
		require.JSONEq(t, string(m.Body), string(got.Body))
		got.Body = nil
		require.Equal(t, store.InboxRow{Seq: 2, UID: "m2", Kind: store.KindUser, Group: "m2", Traceparent: trace("m2")}, got)
	}
	for skey, uid := range map[string]string{c.skey: "i3", newChat("b").skey: "m1"} {
		_, err := e.Store.FindInbox(t.Context(), skey, uid)
		require.ErrorIs(t, err, store.ErrNotFound)
	}

	e.admitOne(t, c.album("m3", "m1"))
	require.Equal(t, int64(1), e.find(t, c, "m1").Seq, "a row's own uid comes first")
}

func inboxAfter(t *testing.T, e *env) {
	c := newChat("a")
	after := func(seq int64) []store.InboxRow {
		got, err := e.Store.InboxAfter(t.Context(), c.skey, seq)
		require.NoError(t, err)
		return got
	}
	require.Empty(t, after(0), "no session")
	e.admit(t, c.users("m1", "m2")...)
	e.admit(t, newChat("b").users("m1", "m2", "m3", "m4")...)
	e.admitOne(t, c.row("m3", store.KindSystem))
	run := e.claim(t, c, worker)
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Taken: []int64{2}})

	require.Len(t, after(0), 3)
	got := after(1)
	require.JSONEq(t, string(text("m2")), string(got[0].Body))
	got[0].Body, got[1].Body = nil, nil
	require.Equal(t, []store.InboxRow{
		{Seq: 2, UID: "m2", Kind: store.KindUser, RunID: run.RunID, Traceparent: trace("m2")},
		{Seq: 3, UID: "m3", Kind: store.KindSystem, Traceparent: trace("m3")},
	}, got)
	require.Empty(t, after(3))
	require.Empty(t, after(4))
}
