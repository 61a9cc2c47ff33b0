package storetest

import (
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// bereave makes a zombie of the current owner, if there is one.
func (m *machine) bereave() {
	if m.want.State == store.Running {
		m.zombies = append(m.zombies, m.run)
	}
}

func (m *machine) interrupt(t *rapid.T) {
	msg := m.chat.interrupting(m.uid())
	msg.EndsCollect = rapid.Bool().Draw(t, "ends collect")
	m.admit(t, msg)
}

func (m *machine) approval(t *rapid.T) { m.admit(t, m.chat.approval(m.uid())) }

func (m *machine) collect(t *rapid.T) { m.admit(t, m.overdue(m.chat.user(m.uid()))) }

// overdue is the message in a quiet window that ends at once.
func (m *machine) overdue(msg store.AdmitMessage) store.AdmitMessage {
	msg.Collect = &store.Collect{Quiet: -time.Second, Max: time.Hour}
	return msg
}

// reject is a plain message to an idle session, and stored without a run by any other.
func (m *machine) reject(t *rapid.T) {
	msg, w := m.chat.rejecting(m.uid()), &m.want
	w.LastSeq++
	want := store.Admitted{Seq: w.LastSeq, Kind: store.KindRefused, Owner: w.Owner, StopRun: w.StopRun}
	if w.State == store.Idle {
		w.Gen++
		w.State, w.RunID, w.WantSeq = store.Queued, msg.RunID, w.LastSeq
		want.Kind, want.Created = store.KindUser, true
	} else {
		w.OutSeq++
		want.OutSeq = w.OutSeq
	}
	want.Gen, want.State, want.RunID = w.Gen, w.State, w.RunID
	require.Equal(t, want, m.e.admitOne(t, msg))
	m.admitted(msg)
}

// suspend waits for an answer that is overdue already.
func (m *machine) suspend(t *rapid.T) {
	m.skipUnlessRunning(t)
	w, q := &m.want, suspension(m.run)
	q.WakeAt = time.Unix(0, 0)
	m.bereave()
	w.Gen++
	w.State, w.Owner, w.WaitKind = store.Waiting, "", store.WaitApproval
	if w.WakeSeq > q.Seen {
		w.State, w.WaitKind = store.Queued, ""
	}
	require.Equal(t, store.SuspendResult{Gen: w.Gen, State: w.State}, m.e.trySuspend(t, q))
}

// wake wakes the session among all that are due.
func (m *machine) wake(t *rapid.T) {
	w, fresh := &m.want, make([]uuid.UUID, 200)
	for i := range fresh {
		fresh[i] = newID()
	}
	got, err := m.e.Store.WakeDue(t.Context(), []int{session.Partition(m.chat.skey)}, fresh)
	require.NoError(t, err)
	var woken []store.QueuedRun
	for _, q := range got {
		if q.SKey == m.chat.skey {
			woken = append(woken, q)
		}
	}
	if w.State != store.Waiting {
		require.Empty(t, woken)
		return
	}
	require.Len(t, woken, 1)
	if m.collecting() {
		require.Contains(t, fresh, woken[0].RunID)
		w.RunID = woken[0].RunID
	}
	w.Gen++
	w.State, w.WaitKind = store.Queued, ""
	require.Equal(t, []any{w.Gen, w.RunID}, []any{woken[0].Gen, woken[0].RunID})
}

func (m *machine) reclaim(t *rapid.T) {
	m.skipUnlessRunning(t)
	fresh := "worker/" + newID().String()
	m.bereave()
	m.want.Gen++
	m.want.Owner = fresh
	require.Equal(t, []store.Reclaimed{{Gen: m.want.Gen}}, m.e.reclaim(t, store.Reclaim{Fence: m.run.Fence, Fresh: fresh}))
	m.run.Gen, m.run.Owner = m.want.Gen, fresh
}

// hasRun reports whether the session has a run that an outsider may end.
func (m *machine) hasRun() bool { return m.want.RunID != uuid.Nil && m.want.State != store.Paused }

func (m *machine) giveUp(t *rapid.T) {
	if m.want.RunID == uuid.Nil {
		t.Skip("there is no run")
	}
	w := &m.want
	g := m.e.givingUp(t, m.chat, rapid.Int64Range(w.DoneSeq+1, w.LastSeq).Draw(t, "to"), push("sorry"))
	if !m.hasRun() {
		require.Equal(t, store.FinishFenced, m.e.giveUp(t, g).Outcome)
		return
	}
	m.bereave()
	m.ended(g.To, g.NextRunID, 1)
	require.Equal(t, store.FinishResult{Known: true, Gen: w.Gen, RunID: w.RunID, FirstOut: w.OutSeq}, m.e.giveUp(t, g))
	m.stored = 0
}

func (m *machine) endStopped(t *rapid.T) {
	w := &m.want
	q := m.e.stopOf(t, m.chat, rapid.Int64Range(w.DoneSeq+1, w.LastSeq+1).Draw(t, "to"), push("stopped"))
	if q.To = min(q.To, w.LastSeq); !m.hasRun() || w.StopRun != w.RunID {
		require.Equal(t, store.FinishResult{Outcome: store.FinishFenced}, m.e.endStopped(t, q))
		return
	}
	m.bereave()
	m.ended(q.To, q.NextRunID, 1)
	require.Equal(t, store.FinishResult{Known: true, Gen: w.Gen, RunID: w.RunID, FirstOut: w.OutSeq}, m.e.endStopped(t, q))
	m.stored = 0
}

func (m *machine) pause(t *rapid.T) {
	w := &m.want
	if w.State != store.Paused {
		m.bereave()
		w.Gen++
		w.State, w.Owner, w.WaitKind = store.Paused, "", ""
	}
	got := m.e.pause(t, m.chat)
	require.Equal(t, []any{w.State, w.Gen, w.RunID}, []any{got.State, got.Gen, got.RunID})
}

func (m *machine) unpause(t *rapid.T) {
	w, next := &m.want, newID()
	if w.State == store.Paused {
		w.Gen++
		w.State = store.Idle
		if w.RunID == uuid.Nil && w.WantSeq > w.DoneSeq {
			w.RunID = next
		}
		if w.RunID != uuid.Nil {
			w.State = store.Queued
		}
	}
	got, err := m.e.Store.Unpause(t.Context(), m.chat.skey, next)
	require.NoError(t, err)
	require.Equal(t, store.Unpaused{State: w.State, Gen: w.Gen, RunID: w.RunID, RunClass: runClass}, got)
}
