package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// conversation is a durable history. The first one of a session exists from its first message on.
type conversation struct {
	store.Conversation
	row       *sessionRow
	endReason string
	// history holds branch 0 in order, without what it was forked from.
	history []*store.Message
}

// openConversation makes the conversation id, which the session points at from now on.
func (s *Store) openConversation(r *sessionRow, id uuid.UUID, from *store.Resumption, now time.Time) {
	c := &conversation{row: r, Conversation: store.Conversation{ID: id, SKey: r.SKey, Tenant: r.Tenant, StartedAt: now}}
	if from != nil {
		c.Parent, c.ParentUpto = from.Parent, from.ParentUpto
	}
	s.conversations[id] = c
	r.conversations = append(r.conversations, c)
	r.SessionID = id
}

// conversation returns that of the session with the id, nil if there is none.
func (r *sessionRow) conversation(id uuid.UUID) *conversation {
	if r == nil {
		return nil
	}
	for _, c := range slices.Backward(r.conversations) {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// converse ends the current conversation and points the session at the next one: a new one, a fork or, where that is
// resumed, an older one of the session. The first row of a session has just made its conversation.
func (s *Store) converse(r *sessionRow, m *store.AdmitMessage, now time.Time) {
	if r.LastSeq == 1 {
		if m.Resume != nil {
			c := r.conversation(r.SessionID)
			c.Parent, c.ParentUpto = m.Resume.Parent, m.Resume.ParentUpto
		}
		return
	}
	current := r.conversation(r.SessionID)
	current.EndedAt, current.endReason = now, endReason(m)
	if m.Resume == nil || m.Resume.Parent != uuid.Nil {
		s.openConversation(r, m.SessionID, m.Resume, now)
		return
	}
	resumed := r.conversation(m.SessionID)
	resumed.EndedAt, resumed.endReason = time.Time{}, ""
	r.SessionID = m.SessionID
}

func endReason(m *store.AdmitMessage) string {
	if m.Resume != nil {
		return "resume"
	}
	return "new"
}

// Conversations implements store.Reader.
func (s *Store) Conversations(ctx context.Context, skey string, limit int) ([]store.Conversation, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list conversations: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.sessions[skey]
	if r == nil {
		return nil, nil
	}
	var out []store.Conversation
	for _, c := range slices.Backward(r.conversations) {
		if len(out) >= limit {
			break
		}
		out = append(out, c.Conversation)
	}
	return out, nil
}

// Conversation implements store.Reader.
func (s *Store) Conversation(ctx context.Context, id uuid.UUID) (store.Conversation, error) {
	if err := alive(ctx); err != nil {
		return store.Conversation{}, fmt.Errorf("read conversation %s: %w", id, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.conversations[id]
	if c == nil {
		return store.Conversation{}, fmt.Errorf("read conversation %s: %w", id, store.ErrNotFound)
	}
	return c.Conversation, nil
}

// History implements store.Transcript.
func (s *Store) History(ctx context.Context, skey string, sessionID uuid.UUID, limit int) ([]store.Message, error) {
	return s.HistoryAfter(ctx, skey, sessionID, 0, limit)
}

// HistoryAfter implements store.Transcript. A reader that knows a run of a fork knows all that it was forked from.
func (s *Store) HistoryAfter(
	ctx context.Context, skey string, sessionID uuid.UUID, runGen int64, limit int,
) ([]store.Message, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.sessions[skey].conversation(sessionID)
	if c == nil || limit <= 0 {
		return nil, nil
	}
	own := c.history[c.through(runGen):]
	if missing := limit - len(own); missing > 0 && runGen <= 0 && c.Parent != uuid.Nil {
		return values(append(s.upto(c.Parent, c.ParentUpto, missing), own...)), nil
	}
	return values(own[max(0, len(own)-limit):]), nil
}

// upto returns the newest limit messages of a conversation, and of what it was forked from, whose runs are not behind
// runGen. A parent is always older than its fork, so that this ends.
func (s *Store) upto(id uuid.UUID, runGen int64, limit int) []*store.Message {
	c := s.conversations[id]
	if c == nil {
		return nil
	}
	own := c.history[:c.through(runGen)]
	if missing := limit - len(own); missing > 0 && c.Parent != uuid.Nil {
		return append(s.upto(c.Parent, c.ParentUpto, missing), own...)
	}
	return slices.Clone(own[max(0, len(own)-limit):])
}

// through counts the messages of runs up to runGen.
func (c *conversation) through(runGen int64) int {
	n, _ := slices.BinarySearchFunc(c.history, runGen+1, func(m *store.Message, gen int64) int { return cmp.Compare(m.RunGen, gen) })
	return n
}

func values(msgs []*store.Message) []store.Message {
	out := make([]store.Message, 0, len(msgs))
	for _, m := range msgs {
		out = append(out, *m)
	}
	return out
}
