package memstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Session implements store.Reader.
func (s *Store) Session(ctx context.Context, skey string) (store.Session, error) {
	if err := alive(ctx); err != nil {
		return store.Session{}, fmt.Errorf("read session %s: %w", skey, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.sessions[skey]
	if r == nil {
		return store.Session{}, fmt.Errorf("read session %s: %w", skey, store.ErrNotFound)
	}
	return r.Session, nil
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, id uuid.UUID) (store.Run, error) {
	if err := alive(ctx); err != nil {
		return store.Run{}, fmt.Errorf("read run %s: %w", id, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	run := s.runs[id]
	if run == nil {
		return store.Run{}, fmt.Errorf("read run %s: %w", id, store.ErrNotFound)
	}
	return run.Run, nil
}

// RunMessages implements store.Reader.
func (s *Store) RunMessages(ctx context.Context, id uuid.UUID) ([]store.Message, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read messages of run %s: %w", id, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	run := s.runs[id]
	if run == nil {
		return nil, nil
	}
	return values(run.messages), nil
}

// RunReplies implements store.Reader.
func (s *Store) RunReplies(ctx context.Context, id uuid.UUID) ([]store.Reply, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read replies of run %s: %w", id, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	run := s.runs[id]
	if run == nil {
		return nil, nil
	}
	out := make([]store.Reply, 0, len(run.replies))
	for _, o := range run.replies {
		out = append(out, store.Reply{OutSeq: o.OutSeq, DKey: o.DKey, Platform: o.Platform, State: o.state, Parts: o.Parts})
	}
	return out, nil
}

// Submission implements store.Reader.
func (s *Store) Submission(ctx context.Context, skey, msgUID string) (store.Submission, error) {
	if err := alive(ctx); err != nil {
		return store.Submission{}, fmt.Errorf("read submission: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.sessions[skey]
	if r == nil || r.uids[msgUID] == 0 {
		return store.Submission{}, fmt.Errorf("read submission: %w", store.ErrNotFound)
	}
	in := r.inbox[r.uids[msgUID]-1] // a row that was purged has no uid
	out := store.Submission{Seq: in.Seq, Kind: in.Kind, Body: in.Body}
	if in.notice != nil {
		out.Notice = in.notice.Parts
	}
	if run := s.answering(r, in); run != nil {
		out.Run, out.Superseded = run.Run, run.superseded(in.Seq)
	}
	return out, nil
}

// InboxAfter implements store.Reader.
func (s *Store) InboxAfter(ctx context.Context, skey string, seq int64) ([]store.InboxRow, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read inbox: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.sessions[skey]; r != nil {
		return r.behind(seq), nil
	}
	return nil, nil
}

// FindInbox implements store.Reader.
func (s *Store) FindInbox(ctx context.Context, skey, uid string) (store.InboxRow, error) {
	if err := alive(ctx); err != nil {
		return store.InboxRow{}, fmt.Errorf("find inbox row: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if in := s.sessions[skey].find(uid); in != nil {
		return in.InboxRow, nil
	}
	return store.InboxRow{}, fmt.Errorf("find inbox row: %w", store.ErrNotFound)
}

// KnownItems implements store.Reader.
func (s *Store) KnownItems(ctx context.Context, skey string, uids []string) ([]string, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read known items: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.sessions[skey]
	return slices.DeleteFunc(slices.Clone(uids), func(uid string) bool { return r.find(uid) == nil }), nil
}

// answering returns the run that takes the row: the one that took it out of its place, or the final run whose range
// holds it, or the current one if it has stored that it takes it.
func (s *Store) answering(r *sessionRow, in *inboxRow) *runRow {
	if in.RunID != uuid.Nil {
		return s.runs[in.RunID]
	}
	if run := r.coveredBy(in.Seq); run != nil {
		return run
	}
	if run := s.runs[r.RunID]; run != nil && run.wrote(in.Seq) {
		return run
	}
	return nil
}
