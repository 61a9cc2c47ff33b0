package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// PutTimer implements store.Timers.
func (s *Store) PutTimer(ctx context.Context, t store.Timer) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("put timer: %w", err)
	}
	var c checker
	c.text("timer", t.ID, t.SKey, t.Tenant, t.Spec)
	c.json("timer body", t.Body)
	if c.err != nil {
		return fmt.Errorf("put timer: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.timers[t.ID]; old != nil && old.SKey != t.SKey {
		return fmt.Errorf("put timer: %w: the id belongs to another session", store.ErrRejected)
	}
	t.Body, t.NextAt = cloneJSON(t.Body), storedTime(t.NextAt)
	s.timers[t.ID] = &t
	return nil
}

// storedTime is a time as Postgres keeps it, in microseconds.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Timers implements store.Timers.
func (s *Store) Timers(ctx context.Context, skey string) ([]store.Timer, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list timers: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.someTimers(func(t *store.Timer) bool { return t.SKey == skey }), nil
}

// someTimers returns the timers that are wanted, by the time that is next.
func (s *Store) someTimers(want func(*store.Timer) bool) []store.Timer {
	var out []store.Timer
	for _, t := range s.timers {
		if want(t) {
			out = append(out, *t)
		}
	}
	slices.SortFunc(out, func(a, b store.Timer) int { return cmp.Or(a.NextAt.Compare(b.NextAt), cmp.Compare(a.ID, b.ID)) })
	return out
}

// DeleteTimer implements store.Timers.
func (s *Store) DeleteTimer(ctx context.Context, skey, id string) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("delete timer: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.timers[id]; t == nil || t.SKey != skey {
		return fmt.Errorf("delete timer: %w", store.ErrNotFound)
	}
	delete(s.timers, id)
	return nil
}

// DueTimers implements store.Timers.
func (s *Store) DueTimers(ctx context.Context, partitions []int, limit int) ([]store.Timer, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list due timers: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now, own := s.reading(), distinct(partitions)
	due := s.someTimers(func(t *store.Timer) bool {
		return !t.NextAt.After(now) && slices.Contains(own, session.Partition(t.SKey))
	})
	return due[:min(len(due), max(0, limit))], nil
}

// MoveTimer implements store.Timers.
func (s *Store) MoveTimer(ctx context.Context, id string, from, to time.Time) (moved bool, err error) {
	if err := alive(ctx); err != nil {
		return false, fmt.Errorf("move timer: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.timers[id]
	if t == nil || !t.NextAt.Equal(storedTime(from)) {
		return false, nil
	}
	if to.IsZero() {
		delete(s.timers, id)
		return true, nil
	}
	t.NextAt = storedTime(to)
	return true, nil
}
