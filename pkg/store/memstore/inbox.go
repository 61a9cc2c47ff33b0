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
		if _, known := s.dead[d.ID]; !known {
			d.Payload = cloneJSON(d.Payload)
			s.dead[d.ID] = d
		}
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
	for _, d := range a.Dead {
		c.text("dead letter", d.Kind, d.Ref, d.Reason)
		c.json("dead letter payload", d.Payload)
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

// checkKeys refuses what would violate a unique key: a run id that is in use, a dkey that the session has.
func (s *Store) checkKeys(msgs []store.AdmitMessage) error {
	type key struct{ skey, id string }
	uids, dkeys, runs := map[key]bool{}, map[key]bool{}, map[uuid.UUID]bool{}
	var c checker
	for i := range msgs {
		m := &msgs[i]
		if m.Edit != nil || s.admitted(m) || uids[key{m.SKey, m.UID}] {
			continue
		}
		uids[key{m.SKey, m.UID}] = true
		if m.WantsRun || m.Reset {
			if _, used := s.runs[m.RunID]; used || runs[m.RunID] || m.RunID == uuid.Nil {
				c.reject("run id", "not fresh")
			}
			runs[m.RunID] = true
		}
		if r := s.sessions[m.SKey]; m.Reset && (m.SessionID == uuid.Nil || r != nil && r.SessionID == m.SessionID) {
			c.reject("session id", "not fresh")
		}
		if m.Notice != nil {
			dkey := key{m.SKey, noticeDKey(m)}
			if s.hasDKey(dkey.skey, dkey.id) || dkeys[dkey] {
				c.reject("notice", "dkey is in use")
			}
			dkeys[dkey] = true
		}
	}
	return c.err
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
		r = s.newSession(m)
	}
	r.LastSeq++
	out := store.Admitted{Seq: r.LastSeq}
	answer := m.Notice != nil
	if m.Reset {
		out.Fenced = s.reset(r, m, now)
	} else {
		answer = answer && (!m.NoticeIfIdle || r.RunID == uuid.Nil)
		r.signal(m)
		out.Created = s.activate(r, m, now)
	}
	out.Gen, out.State, out.RunID, out.Owner, out.StopRun = r.Gen, r.State, r.RunID, r.Owner, r.StopRun
	in := r.store(m)
	if answer {
		notice := *m.Notice
		notice.DKey = noticeDKey(m)
		out.OutSeq = s.reply(r, nil, []store.NewReply{notice}, m.Traceparent, now)
		in.notice = r.out(out.OutSeq)
	}
	return out
}

// store appends the row of the message, which has the number LastSeq.
func (r *sessionRow) store(m *store.AdmitMessage) *inboxRow {
	in := &inboxRow{InboxRow: store.InboxRow{
		Seq: r.LastSeq, UID: m.UID, Kind: m.Kind, Body: cloneJSON(m.Body), Group: m.Group, Traceparent: m.Traceparent,
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

func (s *Store) newSession(m *store.AdmitMessage) *sessionRow {
	class := m.RunClass
	if class == "" {
		class = defaultRunClass
	}
	r := &sessionRow{
		Session: store.Session{
			SKey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey, SessionID: m.SessionID,
			Partition: session.Partition(m.SKey), AgentID: m.AgentID, RunClass: class, State: store.Idle,
		},
		uids:     map[string]int64{},
		items:    map[string]int64{},
		dkeys:    map[string]struct{}{},
		history:  map[uuid.UUID][]*store.Message{},
		messages: map[messageKey]struct{}{},
	}
	s.sessions[m.SKey] = r
	return r
}

// signal notes what the new row asks of the run that is current before it. The first row of a session finds none, and
// the insert leaves ctl_seq alone.
func (r *sessionRow) signal(m *store.AdmitMessage) {
	if m.WantsRun {
		r.WantSeq = r.LastSeq
	}
	if m.Wakes || m.Stop {
		r.WakeSeq = r.LastSeq
	}
	if (m.Steer || m.Stop) && r.LastSeq > 1 {
		r.CtlSeq = r.LastSeq
	}
	if m.Stop {
		r.StopRun = r.RunID
	}
}

// activate queues an idle session that is wanted and a waiting one that is woken, as it is by a stop; created says that
// it made a run.
func (s *Store) activate(r *sessionRow, m *store.AdmitMessage, now time.Time) (created bool) {
	wanted := r.State == store.Idle && m.WantsRun
	woken := r.State == store.Waiting && (m.Wakes || m.Stop)
	if !wanted && !woken {
		return false
	}
	r.Gen++
	s.move(r, store.Queued, now)
	if run := s.runs[r.RunID]; run != nil {
		run.State, run.LastGen = store.RunQueued, r.Gen
		return false
	}
	r.RunID = m.RunID
	s.newRun(r, m.Traceparent, now)
	return true
}
