package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func propertyCases() []testCase {
	return []testCase{
		{"a session follows its state machine whatever happens to it", sessionMachine},
	}
}

func sessionMachine(t *testing.T, e *env) {
	var n atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, e: e, chat: newChat(fmt.Sprint("machine", n.Add(1)))}
		m.admit(rt, m.chat.user("m0")) // so that there is a session to look at
		rt.Repeat(map[string]func(*rapid.T){
			"message":    m.message,
			"duplicate":  m.duplicate,
			"command":    m.command,
			"stop":       m.stop,
			"reset":      m.reset,
			"edit":       m.edit,
			"claim":      m.claim,
			"takeover":   m.takeover,
			"handover":   m.handover,
			"checkpoint": m.checkpoint,
			"finish":     m.finish,
			"stopQueued": m.stopQueued,
			"zombie":     m.zombie,
			"deliver":    m.deliver,
			"interrupt":  m.interrupt,
			"reject":     m.reject,
			"approval":   m.approval,
			"collect":    m.collect,
			"suspend":    m.suspend,
			"wake":       m.wake,
			"reclaim":    m.reclaim,
			"giveUp":     m.giveUp,
			"endStopped": m.endStopped,
			"pause":      m.pause,
			"unpause":    m.unpause,
			"":           m.check,
		})
		require.Equal(rt, m.texts, e.texts(rt, m.chat))
		e.requireTiles(rt, m.chat, m.final...)
	})
}

// machine is one session and what it should look like.
type machine struct {
	t    *testing.T
	e    *env
	chat chat

	want store.Session
	uids []string
	// run is the claim of the current owner, if there is one, zombies are the claims of former ones.
	run     store.Claimed
	zombies []store.Claimed
	stored  int
	history int
	// texts are those of the inbox rows, final are the runs that have ended, in order.
	texts []string
	final []uuid.UUID
}

func (m *machine) admit(t *rapid.T, msg store.AdmitMessage) {
	w := &m.want
	w.LastSeq++
	woken := m.signalled(msg)
	idle := (w.State == store.Idle || w.State == "") && msg.WantsRun
	created := idle && msg.Collect == nil || m.collecting() && (msg.EndsCollect || msg.Wakes || msg.Stop)
	switch {
	case created:
		w.Gen++
		w.State, w.RunID, w.WaitKind = store.Queued, msg.RunID, ""
	case idle:
		w.State, w.WaitKind = store.Waiting, store.WaitCollect
	case w.State == store.Waiting && !m.collecting() && woken:
		w.Gen++
		w.State, w.WaitKind = store.Queued, ""
	case w.State == "":
		w.State = store.Idle
	}
	want := store.Admitted{
		Seq: w.LastSeq, Gen: w.Gen, State: w.State, RunID: w.RunID, Created: created, Owner: w.Owner, StopRun: w.StopRun,
	}
	if msg.Notice != nil {
		w.OutSeq++
		want.OutSeq = w.OutSeq
	}
	require.Equal(t, want, m.e.admitOne(t, msg))
	m.admitted(msg)
}

// signalled notes what the row asks of the current run, and tells whether a waiting one is to go on.
func (m *machine) signalled(msg store.AdmitMessage) (woken bool) {
	w := &m.want
	stops := msg.Stop || msg.Interrupt && w.RunID != uuid.Nil && (w.State == store.Running || w.State == store.Waiting)
	if msg.WantsRun {
		w.WantSeq = w.LastSeq
	}
	if stops {
		w.StopRun = w.RunID
	}
	if stops || msg.Wakes {
		w.WakeSeq = w.LastSeq
	}
	return stops || msg.Wakes
}

func (m *machine) collecting() bool {
	return m.want.State == store.Waiting && m.want.WaitKind == store.WaitCollect
}

func (m *machine) admitted(msg store.AdmitMessage) {
	m.uids, m.texts = append(m.uids, msg.UID), append(m.texts, msg.UID)
}

func (m *machine) uid() string { return fmt.Sprint("m", len(m.uids)) }

func (m *machine) message(t *rapid.T) { m.admit(t, m.chat.user(m.uid())) }
func (m *machine) command(t *rapid.T) { m.admit(t, m.chat.command(m.uid())) }
func (m *machine) stop(t *rapid.T)    { m.admit(t, m.chat.stop(m.uid())) }

// reset ends the run or, without one, covers the rows that are covered by none.
func (m *machine) reset(t *rapid.T) {
	msg, w := m.chat.reset(m.uid()), &m.want
	w.LastSeq++
	w.Gen++
	w.OutSeq++
	to := store.Idle
	if w.State == store.Paused {
		to = store.Paused
	}
	want := store.Admitted{Seq: w.LastSeq, Gen: w.Gen, State: to, OutSeq: w.OutSeq, Fenced: w.RunID}
	switch {
	case w.RunID != uuid.Nil:
		m.final, w.DoneSeq = append(m.final, w.RunID), w.LastSeq
	case w.DoneSeq < w.LastSeq-1:
		m.final, w.DoneSeq = append(m.final, msg.RunID), w.LastSeq
	}
	m.bereave()
	w.State, w.RunID, w.Owner, w.StopRun, w.Attempt = to, uuid.Nil, "", uuid.Nil, 0
	m.stored, m.history = 0, 0
	require.Equal(t, want, m.e.admitOne(t, msg))
	m.admitted(msg)
}

func (m *machine) edit(t *rapid.T) {
	seq := rapid.Int64Range(1, m.want.LastSeq+1).Draw(t, "seq")
	open := seq > m.want.DoneSeq && seq <= m.want.LastSeq
	to := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "text")
	require.Equal(t, store.Admitted{Edited: open}, m.e.admitOne(t, m.chat.edit("edit", seq, to)))
	if open {
		m.texts[seq-1] = to
	}
}

func (m *machine) duplicate(t *rapid.T) {
	uid := rapid.SampledFrom(m.uids).Draw(t, "uid")
	require.Equal(t, store.Admitted{Duplicate: true}, m.e.admitOne(t, m.chat.user(uid)))
}

func (m *machine) claim(t *rapid.T) {
	owner := "worker/" + newID().String()
	got, ok := m.e.tryClaim(t, store.Fence{SKey: m.chat.skey, Gen: m.want.Gen, RunID: m.want.RunID, Owner: owner})
	require.Equal(t, m.want.State == store.Queued, ok)
	if !ok {
		return
	}
	require.Len(t, got.Inbox, int(m.want.LastSeq-m.want.DoneSeq))
	require.Equal(t, m.want.StopRun, got.StopRun)
	m.run, m.want.State, m.want.Owner = got, store.Running, owner
}

func (m *machine) takeover(t *rapid.T) {
	m.skipUnlessRunning(t)
	m.e.takeOver(m.t, m.chat)
	m.zombies = append(m.zombies, m.run)
	m.want.Gen++
	m.want.Attempt++
	m.want.State, m.want.Owner = store.Queued, ""
}

func (m *machine) handover(t *rapid.T) {
	m.skipUnlessRunning(t)
	m.want.Gen++
	m.want.State, m.want.Owner = store.Queued, ""
	require.Equal(t,
		[]store.HandoverResult{{Gen: m.want.Gen}}, m.e.handover(t, store.Checkpoint{Fence: m.run.Fence, RunGen: m.run.FirstGen}))
	m.zombies = append(m.zombies, m.run)
}

func (m *machine) stopQueued(t *rapid.T) {
	w := &m.want
	q := m.e.stopOf(t, m.chat, rapid.Int64Range(w.DoneSeq+1, w.LastSeq+1).Draw(t, "to"), push("stopped"))
	if q.To = min(q.To, w.LastSeq); w.State != store.Queued || w.StopRun != w.RunID {
		require.Equal(t, store.FinishResult{Outcome: store.FinishFenced}, m.e.stopQueued(t, q))
		return
	}
	m.ended(q.To, q.NextRunID, 1)
	require.Equal(t, store.FinishResult{
		Outcome: store.Finished, Known: true, Gen: w.Gen, RunID: w.RunID, FirstOut: w.OutSeq,
	}, m.e.stopQueued(t, q))
	m.stored = 0
}

// ended is what becomes of the session when its run ends.
func (m *machine) ended(to int64, next uuid.UUID, replies int) {
	w := &m.want
	m.final = append(m.final, w.RunID)
	w.Gen++
	w.DoneSeq, w.Owner, w.StopRun, w.RunID, w.State, w.Attempt = to, "", uuid.Nil, uuid.Nil, store.Idle, 0
	if w.WantSeq > to {
		w.State, w.RunID = store.Queued, next
	}
	w.OutSeq += int64(replies)
}

func (m *machine) checkpoint(t *rapid.T) {
	m.skipUnlessRunning(t)
	got := m.e.checkpoint(t, store.Checkpoint{
		Fence: m.run.Fence, RunGen: m.run.FirstGen, Messages: []store.Message{said(m.stored+1, "assistant", "step", 0)},
	})
	require.Equal(t, m.want.LastSeq, got.LastSeq)
	require.Equal(t, m.want.StopRun, got.StopRun)
	m.stored++
	m.history++
}

func (m *machine) finish(t *rapid.T) {
	m.skipUnlessRunning(t)
	w := &m.want
	f := done(m.run, rapid.Int64Range(w.DoneSeq+1, w.LastSeq).Draw(t, "to"))
	for i := range rapid.IntRange(0, 2).Draw(t, "replies") {
		f.Replies = append(f.Replies, push(fmt.Sprint(i)))
	}
	f.State = rapid.SampledFrom([]store.RunState{store.RunDone, store.RunFailed, store.RunCancelled}).Draw(t, "state")
	if w.StopRun == w.RunID && f.State != store.RunCancelled {
		require.Equal(t, store.FinishStopped, m.e.tryFinish(t, f).Outcome)
		return
	}
	m.ended(f.To, f.NextRunID, len(f.Replies))
	got := m.e.finish(t, f)
	require.Equal(t, w.Gen, got.Gen)
	require.Equal(t, w.RunID, got.RunID)
	if n := int64(len(f.Replies)); n > 0 {
		require.Equal(t, w.OutSeq-n+1, got.FirstOut)
	}
	m.stored = 0
	require.Equal(t, store.FinishResult{Outcome: store.Finished}, m.e.tryFinish(t, f), "repeated")
	m.zombies = append(m.zombies, m.run)
}

// zombie is a former owner that wakes up and tries everything.
func (m *machine) zombie(t *rapid.T) {
	if len(m.zombies) == 0 {
		t.Skip("nobody has lost the session yet")
	}
	z := rapid.SampledFrom(m.zombies).Draw(t, "zombie")
	_, ok := m.e.tryClaim(t, z.Fence)
	require.False(t, ok)
	late := store.Checkpoint{Fence: z.Fence, RunGen: z.FirstGen, Messages: []store.Message{said(99, "assistant", "late", 0)}}
	require.ErrorIs(t, m.e.tryCheckpoint(t, late).Err, store.ErrFenced)
	f := done(z, m.want.LastSeq, push("late"))
	f.State = store.RunFailed
	require.False(t, m.e.tryFinish(t, f).Known)
}

func (m *machine) deliver(t *rapid.T) {
	if m.want.OutSent == m.want.OutSeq {
		t.Skip("nothing waits to be sent")
	}
	seq := rapid.Int64Range(m.want.OutSent+1, m.want.OutSeq).Draw(t, "out_seq")
	from := "egress/" + newID().String()
	_, ok := m.e.deliver(t, from, m.chat.out(seq))
	require.Equal(t, seq == m.want.OutSent+1, ok)
	if !ok {
		return
	}
	m.want.OutSent++
	require.Equal(t,
		[]store.Marked{{SKey: m.chat.skey, OutSeq: m.want.OutSeq, OutSent: seq}},
		m.e.mark(t, sent(m.chat, seq)))
}

func (m *machine) skipUnlessRunning(t *rapid.T) {
	if m.want.State != store.Running {
		t.Skip("the session has no owner")
	}
}

// check compares what the store shows with what the machine expects.
func (m *machine) check(t *rapid.T) {
	got, w := m.e.session(t, m.chat), m.want
	require.Equal(t, w.State, got.State)
	require.Equal(t, w.RunID, got.RunID)
	require.Equal(t, w.Owner, got.Owner)
	require.Equal(t, w.StopRun, got.StopRun)
	require.Equal(t,
		[]int64{w.Gen, w.LastSeq, w.DoneSeq, w.WantSeq, w.WakeSeq, w.OutSeq, w.OutSent, int64(w.Attempt)},
		[]int64{got.Gen, got.LastSeq, got.DoneSeq, got.WantSeq, got.WakeSeq, got.OutSeq, got.OutSent, int64(got.Attempt)})
	if w.State == store.Waiting {
		require.Equal(t, w.WaitKind, got.WaitKind)
	}
	require.Len(t, m.e.history(t, m.chat, 1000), m.history)
}
