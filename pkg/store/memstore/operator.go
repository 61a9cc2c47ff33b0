package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// workersKnown is how long a worker that is silent is remembered.
const workersKnown = 24 * time.Hour

// workerRow is the newest beat of a worker.
type workerRow struct {
	store.WorkerBeat
	at time.Time
}

// Pause implements store.Operator.
func (s *Store) Pause(ctx context.Context, skey string) (store.Session, error) {
	if err := alive(ctx); err != nil {
		return store.Session{}, fmt.Errorf("pause %s: %w", skey, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sessions[skey]
	if r == nil {
		return store.Session{}, fmt.Errorf("pause %s: %w", skey, store.ErrNotFound)
	}
	if r.State != store.Paused {
		s.interrupt(r, store.Paused, s.tick())
	}
	return r.Session, nil
}

// Unpause implements store.Operator.
func (s *Store) Unpause(ctx context.Context, skey string, next uuid.UUID) (store.Unpaused, error) {
	if err := alive(ctx); err != nil {
		return store.Unpaused{}, fmt.Errorf("unpause %s: %w", skey, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sessions[skey]
	if r == nil {
		return store.Unpaused{}, fmt.Errorf("unpause %s: %w", skey, store.ErrNotFound)
	}
	if r.State == store.Paused {
		if err := s.unpause(r, next, s.tick()); err != nil {
			return store.Unpaused{}, fmt.Errorf("unpause %s: %w", skey, err)
		}
	}
	return store.Unpaused{State: r.State, Gen: r.Gen, RunID: r.RunID, RunClass: r.RunClass}, nil
}

func (s *Store) unpause(r *sessionRow, next uuid.UUID, now time.Time) error {
	switch {
	case r.RunID != uuid.Nil:
		s.requeue(r, now)
	case r.WantSeq > r.DoneSeq:
		if _, used := s.runs[next]; used || next == uuid.Nil {
			return fmt.Errorf("%w: next run id: not fresh", store.ErrRejected)
		}
		s.begin(r, next, "", now)
	default:
		r.Gen++
		s.move(r, store.Idle, now)
	}
	return nil
}

// FindSessions implements store.Operator.
func (s *Store) FindSessions(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Session
	for _, skey := range slices.Sorted(maps.Keys(s.sessions)) {
		r := s.sessions[skey]
		if skey <= q.After || q.Tenant != "" && r.Tenant != q.Tenant || q.State != "" && r.State != q.State {
			continue
		}
		if q.Limit > 0 && len(out) == q.Limit {
			break
		}
		out = append(out, r.Session)
	}
	return out, nil
}

// Workers implements store.Operator.
func (s *Store) Workers(ctx context.Context) ([]store.WorkerState, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.reading()
	var out []store.WorkerState
	for _, id := range slices.Sorted(maps.Keys(s.workers)) {
		w := s.workers[id]
		if silent := now.Sub(w.at); silent <= workersKnown {
			out = append(out, store.WorkerState{WorkerBeat: w.WorkerBeat, Silent: silent})
		}
	}
	return out, nil
}

// Beats returns the newest beat of every worker, by worker id.
func (s *Store) Beats() []store.WorkerBeat {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.WorkerBeat
	for _, w := range s.workers {
		out = append(out, w.WorkerBeat)
	}
	slices.SortFunc(out, func(a, b store.WorkerBeat) int { return cmp.Compare(a.WorkerID, b.WorkerID) })
	return out
}

// Redeliver implements store.Operator.
func (s *Store) Redeliver(ctx context.Context, skey string, n store.NewReply) (store.Doorbell, error) {
	if err := alive(ctx); err != nil {
		return store.Doorbell{}, fmt.Errorf("redeliver to %s: %w", skey, err)
	}
	var c checker
	c.ownReplies([]store.NewReply{n})
	if c.err != nil {
		return store.Doorbell{}, fmt.Errorf("redeliver to %s: %w", skey, c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sessions[skey]
	if r == nil {
		return store.Doorbell{}, fmt.Errorf("redeliver to %s: %w", skey, store.ErrNotFound)
	}
	for _, o := range slices.Backward(r.outbox) {
		if o != nil && o.DKey == n.DKey {
			return o.doorbell(), nil
		}
	}
	return r.out(s.reply(r, nil, []store.NewReply{n}, "", s.tick())).doorbell(), nil
}
