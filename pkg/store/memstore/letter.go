package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func (c *checker) letter(d *store.DeadLetter) {
	c.text("dead letter", d.Kind, d.Ref, d.Reason)
	c.json("dead letter payload", d.Payload)
}

// bury stores a dead letter, unless it is there already.
func (s *Store) bury(d store.DeadLetter, now time.Time) {
	if _, known := s.dead[d.ID]; known {
		return
	}
	d.Payload = cloneJSON(d.Payload)
	s.dead[d.ID] = &store.StoredLetter{DeadLetter: d, CreatedAt: now}
}

// letter is the dead letter of a reply that could not be delivered.
func (o *outRow) letter(m store.Mark) store.DeadLetter {
	payload, err := json.Marshal(store.DeadDelivery{
		SKey: o.SKey, OutSeq: o.OutSeq, DKey: o.DKey, Platform: o.Platform, Target: o.Target, Parts: o.Parts,
	})
	if err != nil {
		panic(err) // target and parts were checked when the row was written
	}
	return store.DeadLetter{ID: m.LetterID, Kind: store.DeadKindDelivery, Ref: o.ref(), Reason: m.Reason, Payload: payload}
}

// ref is how dead letters call the row.
func (o *outRow) ref() string { return fmt.Sprintf("%s/%d", o.SKey, o.OutSeq) }

// Letters returns the dead letters by id.
func (s *Store) Letters() []store.DeadLetter {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.DeadLetter
	for _, d := range slices.SortedFunc(maps.Values(s.dead), olderLetter) {
		out = append(out, d.DeadLetter)
	}
	return out
}

func olderLetter(a, b *store.StoredLetter) int { return bytes.Compare(a.ID[:], b.ID[:]) }

// DeadLetters implements store.Operator.
func (s *Store) DeadLetters(ctx context.Context, q store.LetterQuery) ([]store.StoredLetter, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.StoredLetter
	for _, d := range slices.Backward(slices.SortedFunc(maps.Values(s.dead), olderLetter)) {
		before := q.Before == uuid.Nil || bytes.Compare(d.ID[:], q.Before[:]) < 0
		if !before || q.Kind != "" && d.Kind != q.Kind || q.Open && d.Replays > 0 {
			continue
		}
		if q.Limit > 0 && len(out) == q.Limit {
			break
		}
		listed := *d
		listed.Payload = nil
		out = append(out, listed)
	}
	return out, nil
}

// DeadLetter implements store.Operator.
func (s *Store) DeadLetter(ctx context.Context, id uuid.UUID) (store.StoredLetter, error) {
	if err := alive(ctx); err != nil {
		return store.StoredLetter{}, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	d := s.dead[id]
	if d == nil {
		return store.StoredLetter{}, fmt.Errorf("read dead letter %s: %w", id, store.ErrNotFound)
	}
	return *d, nil
}

// CountReplay implements store.Operator.
func (s *Store) CountReplay(ctx context.Context, id uuid.UUID) (store.StoredLetter, error) {
	if err := alive(ctx); err != nil {
		return store.StoredLetter{}, fmt.Errorf("count replay of %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dead[id]
	if d == nil {
		return store.StoredLetter{}, fmt.Errorf("count replay of %s: %w", id, store.ErrNotFound)
	}
	d.Replays++
	d.ReplayedAt = s.tick()
	return *d, nil
}
