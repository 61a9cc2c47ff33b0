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
			"claim":      m.claim,
			"takeover":   m.takeover,
			"checkpoint": m.checkpoint,
			"finish":     m.finish,
			"zombie":     m.zombie,
			"deliver":    m.deliver,
			"":           m.check,
		})
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
}

func (m *machine) admit(t *rapid.T, msg store.AdmitMessage) {
	w := &m.want
	w.LastSeq++
	if msg.WantsRun {
		w.WantSeq = w.LastSeq
	}
	if msg.Stop {
		w.StopRun = w.RunID
	}
	created := msg.WantsRun && (w.State == store.Idle || w.State == "")
	switch {
	case created:
		w.Gen++
		w.State, w.RunID = store.Queued, msg.RunID
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
	m.uids = append(m.uids, msg.UID)
}

func (m *machine) uid() string { return fmt.Sprint("m", len(m.uids)) }

func (m *machine) message(t *rapid.T) { m.admit(t, m.chat.user(m.uid())) }
func (m *machine) command(t *rapid.T) { m.admit(t, m.chat.command(m.uid())) }
func (m *machine) stop(t *rapid.T)    { m.admit(t, m.chat.stop(m.uid())) }

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
	m.skipUnless(t, store.Running)
	m.e.TakeOver(m.t, m.chat.skey)
	m.zombies = append(m.zombies, m.run)
	m.want.Gen++
	m.want.Attempt++
	m.want.State, m.want.Owner = store.Queued, ""
}

func (m *machine) checkpoint(t *rapid.T) {
	m.skipUnless(t, store.Running)
	got := m.e.checkpoint(t, store.Checkpoint{
		Fence: m.run.Fence, RunGen: m.run.FirstGen, Messages: []store.Message{said(m.stored+1, "assistant", "step", 0)},
	})
	require.Equal(t, m.want.LastSeq, got.LastSeq)
	require.Equal(t, m.want.StopRun, got.StopRun)
	m.stored++
	m.history++
}

func (m *machine) finish(t *rapid.T) {
	m.skipUnless(t, store.Running)
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
	w.Gen++
	w.DoneSeq, w.Owner, w.StopRun, w.RunID, w.State, w.Attempt = f.To, "", uuid.Nil, uuid.Nil, store.Idle, 0
	if w.WantSeq > f.To {
		w.State, w.RunID = store.Queued, f.NextRunID
	}
	got := m.e.finish(t, f)
	require.Equal(t, w.Gen, got.Gen)
	require.Equal(t, w.RunID, got.RunID)
	if len(f.Replies) > 0 {
		require.Equal(t, w.OutSeq+1, got.FirstOut)
	}
	w.OutSeq += int64(len(f.Replies))
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

func (m *machine) skipUnless(t *rapid.T, s store.SessionState) {
	if m.want.State != s {
		t.Skip("the session is not " + string(s))
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
		[]int64{w.Gen, w.LastSeq, w.DoneSeq, w.WantSeq, w.OutSeq, w.OutSent, int64(w.Attempt)},
		[]int64{got.Gen, got.LastSeq, got.DoneSeq, got.WantSeq, got.OutSeq, got.OutSent, int64(got.Attempt)})
	require.Len(t, m.e.history(t, m.chat, 1000), m.history)
}
