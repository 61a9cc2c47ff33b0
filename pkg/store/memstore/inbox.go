package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// defaultRunClass is the run class of a session whose first message names none.
const defaultRunClass = "default"

// Offsets implements store.Inbox.
func (s *Store) Offsets(ctx context.Context, partitions []int) ([]store.Offset, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read offsets: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Offset
	for _, p := range partitions {
		if o, ok := s.offsets[p]; ok {
			out = append(out, o)
		}
	}
	return out, nil
}

// SetOffset implements store.Inbox.
func (s *Store) SetOffset(ctx context.Context, old *store.Offset, next store.Offset) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("set offset: %w", err)
	}
	var c checker
	c.text("offset", next.Stream, next.LastUID)
	if c.err != nil {
		return fmt.Errorf("set offset: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have, exists := s.offsets[next.Partition]
	if exists != (old != nil) || exists && !sameOffset(have, *old) {
		return &store.OffsetMovedError{Partitions: []int{next.Partition}}
	}
	s.offsets[next.Partition] = next
	return nil
}

// sameOffset compares times as Postgres keeps them, in microseconds.
func sameOffset(a, b store.Offset) bool {
	return a.Stream == b.Stream && a.LastSeq == b.LastSeq &&
		a.StreamCreated.Truncate(time.Microsecond).Equal(b.StreamCreated.Truncate(time.Microsecond))
}

// Admit implements store.Inbox. Everything that could refuse the batch is checked before its first row is written.
func (s *Store) Admit(ctx context.Context, a store.Admission) ([]store.Admitted, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("admit: %w", err)
	}
	if err := checkAdmission(&a); err != nil {
		return nil, fmt.Errorf("admit: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOffsets(a.Offsets); err != nil {
		return nil, err
	}
	if err := s.checkKeys(a.Messages); err != nil {
		return nil, fmt.Errorf("admit: %w", err)
	}
	now := s.tick()
	s.moveOffsets(a.Offsets, now)
	out := make([]store.Admitted, len(a.Messages))
	for i := range a.Messages {
		out[i] = s.admit(&a.Messages[i], now)
	}
	for _, d := range a.Dead {
		s.bury(d, now)
	}
	return out, nil
}

func checkAdmission(a *store.Admission) error {
	var c checker
	for _, o := range a.Offsets {
		c.text("offset", o.UID)
	}
	for i := range a.Messages {
		m := &a.Messages[i]
		c.text("message", m.SKey, m.Tenant, m.SessionKey, m.AgentID, m.RunClass, m.UID, string(m.Kind), m.Group, m.Traceparent)
		c.text("item", m.Items...)
		c.json("message body", m.Body)
		if m.Notice != nil {
			c.reply(m.Notice)
		}
		if m.Edit != nil {
			c.json("edited body", m.Edit.Body)
		}
	}
	for i := range a.Dead {
		c.letter(&a.Dead[i])
	}
	return c.err
}

func (s *Store) checkOffsets(moves []store.OffsetMove) error {
	var moved []int
	for _, m := range moves {
		if have, ok := s.offsets[m.Partition]; !ok || have.LastSeq != m.From {
			moved = append(moved, m.Partition)
		}
	}
	if moved == nil {
		return nil
	}
	slices.Sort(moved)
	return &store.OffsetMovedError{Partitions: moved}
}

func (s *Store) moveOffsets(moves []store.OffsetMove, now time.Time) {
	for _, m := range moves {
		o := s.offsets[m.Partition]
		o.LastSeq, o.LastUID, o.LastAt = m.To, m.UID, now
		s.offsets[m.Partition] = o
	}
}

// idKey is an id that is unique within a session.
type idKey struct{ skey, id string }

// freshIDs are the ids that the messages of one admission bring.
type freshIDs struct {
	uids, dkeys map[idKey]bool
	runs        map[uuid.UUID]bool
	// conversations are those that a message before has begun.
	conversations map[uuid.UUID]string
}

// checkKeys refuses what would violate a unique key: a run id that is in use, a dkey that the session has. And it refuses
// to resume a conversation that the session does not have.
func (s *Store) checkKeys(msgs []store.AdmitMessage) error {
	fresh := freshIDs{
		uids: map[idKey]bool{}, dkeys: map[idKey]bool{}, runs: map[uuid.UUID]bool{}, conversations: map[uuid.UUID]string{},
	}
	var c checker
	for i := range msgs {
		m := &msgs[i]
		if m.Edit != nil || s.admitted(m) || fresh.uids[idKey{m.SKey, m.UID}] {
			continue
		}
		fresh.uids[idKey{m.SKey, m.UID}] = true
		if m.WantsRun || m.Reset || s.sessions[m.SKey].collecting() && endsCollect(m) {
			if _, used := s.runs[m.RunID]; used || fresh.runs[m.RunID] || m.RunID == uuid.Nil {
				c.reject("run id", "not fresh")
			}
			fresh.runs[m.RunID] = true
		}
		if m.Reset {
			s.checkConversation(&c, m, fresh.conversations)
		}
		if m.Notice != nil {
			dkey := idKey{m.SKey, noticeDKey(m)}
			if s.hasDKey(dkey.skey, dkey.id) || fresh.dkeys[dkey] {
				c.reject("notice", "dkey is in use")
			}
			fresh.dkeys[dkey] = true
		}
	}
	return c.err
}

// checkConversation checks what a Reset points the session at: a conversation of its own, or a new one.
func (s *Store) checkConversation(c *checker, m *store.AdmitMessage, begun map[uuid.UUID]string) {
	_, exists := s.conversations[m.SessionID]
	if m.Resume != nil && m.Resume.Parent == uuid.Nil {
		if s.sessions[m.SKey].conversation(m.SessionID) == nil && begun[m.SessionID] != m.SKey {
			c.reject("session id", "not a conversation of the session")
		}
		return
	}
	if _, twice := begun[m.SessionID]; exists || twice || m.SessionID == uuid.Nil {
		c.reject("session id", "not fresh")
	}
	begun[m.SessionID] = m.SKey
	if m.Resume != nil && s.conversations[m.Resume.Parent] == nil {
		c.reject("parent", "no such conversation")
	}
}

func (s *Store) admitted(m *store.AdmitMessage) bool {
	r := s.sessions[m.SKey]
	if r == nil {
		return false
	}
	_, known := r.uids[m.UID]
	return known
}

func noticeDKey(m *store.AdmitMessage) string {
	if m.Notice.DKey != "" {
		return m.Notice.DKey
	}
	return m.UID + ":" + string(m.Kind)
}

// admit is t1_message: bump the session, start a run if the row wants one and none is active, store the row.
func (s *Store) admit(m *store.AdmitMessage, now time.Time) store.Admitted {
	switch {
	case m.Edit != nil:
		return store.Admitted{Edited: s.edit(m.SKey, m.Edit)}
	case s.admitted(m):
		return store.Admitted{Duplicate: true}
	}
	r := s.sessions[m.SKey]
	if r == nil {
		r = s.newSession(m, now)
	}
	r.LastSeq++
	out := store.Admitted{Seq: r.LastSeq, Kind: m.Kind}
	answer := m.Notice != nil
	switch {
	case m.Reset:
		out.Fenced = s.reset(r, m, now)
	case m.RejectIfBusy && r.State != store.Idle:
		out.Kind = store.KindRefused
	default:
		answer = answer && !m.RejectIfBusy && (!m.NoticeIfIdle || r.RunID == uuid.Nil)
		woken := r.signal(m, now)
		out.Created = s.activate(r, m, woken, now)
	}
	out.Gen, out.State, out.RunID, out.Owner, out.StopRun = r.Gen, r.State, r.RunID, r.Owner, r.StopRun
	out.DoneSeq = r.DoneSeq
	in := r.store(m, out.Kind, now)
	if answer {
		notice := *m.Notice
		notice.DKey = noticeDKey(m)
		out.OutSeq = s.reply(r, nil, []store.NewReply{notice}, m.Traceparent, now)
		in.notice = r.out(out.OutSeq)
	}
	return out
}

// store appends the row of the message, which has the number LastSeq.
func (r *sessionRow) store(m *store.AdmitMessage, kind store.InboxKind, now time.Time) *inboxRow {
	in := &inboxRow{at: now, items: slices.Clone(m.Items), InboxRow: store.InboxRow{
		Seq: r.LastSeq, UID: m.UID, Kind: kind, Body: cloneJSON(m.Body), Group: m.Group, Traceparent: m.Traceparent,
	}}
	r.inbox = append(r.inbox, in)
	r.uids[m.UID] = in.Seq
	for _, uid := range m.Items {
		if _, known := r.items[uid]; !known {
			r.items[uid] = in.Seq
		}
	}
	return in
}

// edit replaces the body of a row that no run has been finished with. Its run, which may have read it, goes on.
func (s *Store) edit(skey string, e *store.InboxEdit) bool {
	r := s.sessions[skey]
	if r == nil || e.Seq <= r.DoneSeq || e.Seq < 1 || e.Seq > r.LastSeq {
		return false
	}
	r.inbox[e.Seq-1].Body = cloneJSON(e.Body)
	return true
}

func (s *Store) newSession(m *store.AdmitMessage, now time.Time) *sessionRow {
	class := m.RunClass
	if class == "" {
		class = defaultRunClass
	}
	r := &sessionRow{
		Session: store.Session{
			SKey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey,
			Partition: session.Partition(m.SKey), AgentID: m.AgentID, RunClass: class, State: store.Idle,
		},
		uids:     map[string]int64{},
		items:    map[string]int64{},
		dkeys:    map[string]struct{}{},
		messages: map[messageKey]struct{}{},
	}
	s.sessions[m.SKey] = r
	s.openConversation(r, m.SessionID, nil, now)
	return r
}

// endsCollect reports whether the message ends a quiet window.
func endsCollect(m *store.AdmitMessage) bool { return m.EndsCollect || m.Wakes || m.Stop }

// collecting reports whether the session waits for more messages, without a run.
func (r *sessionRow) collecting() bool {
	return r != nil && r.State == store.Waiting && r.WaitKind == store.WaitCollect
}

// signal notes what the new row asks of the run that is current before it, and reports whether a waiting one is to go on.
// The first row of a session finds none, and the insert leaves ctl_seq alone.
func (r *sessionRow) signal(m *store.AdmitMessage, now time.Time) (wakes bool) {
	interrupts := m.Interrupt && r.RunID != uuid.Nil && (r.State == store.Running || r.State == store.Waiting)
	stops := m.Stop || interrupts
	wakes = m.Wakes || stops
	if m.WantsRun {
		r.WantSeq = r.LastSeq
	}
	if wakes {
		r.WakeSeq = r.LastSeq
	}
	if (m.Steer || stops) && r.LastSeq > 1 {
		r.CtlSeq = r.LastSeq
	}
	if stops {
		if r.StopRun != r.RunID {
			r.stopAt = now
		}
		r.StopRun = r.RunID
	}
	return wakes
}

// activate moves the session on: an idle one that is wanted begins a run or a quiet window, a waiting one that is woken
// is queued, and the window that the row ends or that it moves on. created says that it made a run.
func (s *Store) activate(r *sessionRow, m *store.AdmitMessage, woken bool, now time.Time) (created bool) {
	switch {
	case r.State == store.Idle && m.WantsRun && m.Collect != nil:
		s.move(r, store.Waiting, now)
		r.WaitKind, r.QueuedAt = store.WaitCollect, now
		r.extend(m.Collect, now)
	case r.State == store.Idle && m.WantsRun, r.collecting() && endsCollect(m):
		s.begin(r, m.RunID, m.Traceparent, now)
		return true
	case r.collecting():
		if m.Collect != nil {
			r.extend(m.Collect, now)
		}
	case r.State == store.Waiting && woken:
		s.requeue(r, now)
	}
	return false
}

// extend moves the end of a quiet window on; QueuedAt is its beginning.
func (r *sessionRow) extend(c *store.Collect, now time.Time) {
	r.WakeAt = now.Add(c.Quiet)
	if last := r.QueuedAt.Add(c.Max); last.Before(r.WakeAt) {
		r.WakeAt = last
	}
}

// begin queues a new run of the session.
func (s *Store) begin(r *sessionRow, runID uuid.UUID, traceparent string, now time.Time) {
	r.Gen++
	r.RunID = runID
	s.move(r, store.Queued, now)
	s.newRun(r, traceparent, now)
}
