package storetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func editCases() []testCase {
	return []testCase{
		{"edit replaces the body of a row that waits", editWaiting},
		{"edit of a row that a run is reading does not disturb the run", editRunning},
		{"edit of a row that was finished with changes nothing", editDone},
		{"edit of a row that does not exist changes nothing", editMissing},
		{"edit is told in the place of its message", editInBatch},
		{"edit with poison is rejected with the batch", editPoison},
	}
}

// edit is a new text for the row seq.
func (c chat) edit(uid string, seq int64, to string) store.AdmitMessage {
	m := c.row(uid, store.KindUser)
	m.Edit = &store.InboxEdit{Seq: seq, Body: text(to)}
	return m
}

func (e *env) texts(t tb, c chat) []string {
	t.Helper()
	rows, err := e.Store.InboxAfter(t.Context(), c.skey, 0)
	require.NoError(t, err)
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, textOf(t, r.Body))
	}
	return out
}

func editWaiting(t *testing.T, e *env) {
	c, other := newChat("a"), newChat("b")
	e.admit(t, c.users("m1", "m2", "m3")...)
	e.admit(t, other.users("m1", "m2", "m3")...)
	before := e.session(t, c)
	row := e.find(t, c, "m2")
	for _, to := range []string{"edited", "edited again", "edited again"} {
		require.Equal(t, store.Admitted{Edited: true}, e.admitOne(t, c.edit("e1", 2, to)))
		require.Equal(t, []string{"m1", to, "m3"}, e.texts(t, c))
	}
	require.Equal(t, before, e.session(t, c), "it has no number and does nothing to the session")
	require.Equal(t, []string{"m1", "m2", "m3"}, e.texts(t, other))
	require.Empty(t, e.known(t, c, "e1"))

	got := e.claim(t, c, worker).Inbox[1]
	require.JSONEq(t, string(text("edited again")), string(got.Body))
	got.Body = row.Body
	require.Equal(t, row, got, "nothing but the body")
}

func editRunning(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{said(1, "user", "m1", 1)}, Taken: []int64{1}})
	before := e.session(t, c)
	require.Equal(t, store.Admitted{Edited: true}, e.admitOne(t, c.edit("e1", 1, "edited")))
	require.Equal(t, before, e.session(t, c))
	require.Equal(t, run.RunID, e.find(t, c, "m1").RunID)
	require.Equal(t, store.Signals{LastSeq: 1}, e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen}))
	require.Equal(t, []string{"user: m1"}, transcript(t, e.history(t, c, 10)), "the run keeps the text that it has read")
	e.finish(t, done(run, 1))
}

func editDone(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.user("m2"))
	e.finish(t, done(run, 1))
	require.Equal(t, store.Admitted{}, e.admitOne(t, c.edit("e1", 1, "edited")))
	require.Equal(t, store.Admitted{Edited: true}, e.admitOne(t, c.edit("e2", 2, "edited")))
	require.Equal(t, []string{"m1", "edited"}, e.texts(t, c))
	e.admitOne(t, c.reset("m3"))
	require.Equal(t, store.Admitted{}, e.admitOne(t, c.edit("e2", 2, "edited again")), "nor one that was cancelled")
	require.Equal(t, []string{"m1", "edited", "m3"}, e.texts(t, c))
}

func editMissing(t *testing.T, e *env) {
	c := newChat("a")
	require.Equal(t, store.Admitted{}, e.admitOne(t, c.edit("e1", 1, "edited")))
	e.noSession(t, c)
	e.admitOne(t, c.user("m1"))
	for _, seq := range []int64{-1, 0, 2} {
		require.Equal(t, store.Admitted{}, e.admitOne(t, c.edit("e1", seq, "edited")), "row %d", seq)
	}
	require.Equal(t, []string{"m1"}, e.texts(t, c))
}

func editInBatch(t *testing.T, e *env) {
	c := newChat("a")
	got := e.admit(t, c.user("m1"), c.edit("e1", 1, "first"), c.edit("e1", 1, "last"), c.user("m2"), c.edit("e2", 3, "none"))
	require.Equal(t, []bool{false, true, true, false, false},
		[]bool{got[0].Edited, got[1].Edited, got[2].Edited, got[3].Edited, got[4].Edited})
	require.Equal(t, []int64{1, 2}, []int64{got[0].Seq, got[3].Seq})
	require.Equal(t, []string{"last", "m2"}, e.texts(t, c))
}

func editPoison(t *testing.T, e *env) {
	c := newChat("a")
	e.admitOne(t, c.user("m1"))
	bad := c.edit("e1", 1, "x")
	bad.Edit.Body = json.RawMessage(`{"text":"\u0000"}`)
	_, err := e.Store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{c.user("m2"), bad}})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Equal(t, []string{"m1"}, e.texts(t, c))
}
