package memstore

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// cursor is a place in the queues: behind the ticket of the partition.
type cursor struct {
	partition int
	ticket    int64
}

func (c cursor) String() string { return fmt.Sprintf("%d/%d", c.partition, c.ticket) }

func parseCursor(text string) (cursor, error) {
	c := cursor{partition: -1}
	if text == "" {
		return c, nil
	}
	if _, err := fmt.Sscanf(text, "%d/%d", &c.partition, &c.ticket); err != nil {
		return c, fmt.Errorf("cursor %q: %w", text, err)
	}
	return c, nil
}

// QueuedRuns implements store.Sweep. The cursor is a place in the partition's queue, so that a page goes on where the
// last one ended whatever was claimed or queued in between.
func (s *Store) QueuedRuns(
	ctx context.Context, partitions []int, age time.Duration, after string, limit int,
) (runs []store.QueuedRun, next string, err error) {
	if err := alive(ctx); err != nil {
		return nil, "", fmt.Errorf("list queued runs: %w", err)
	}
	at, err := parseCursor(after)
	if err != nil {
		return nil, "", fmt.Errorf("list queued runs: %w", err)
	}
	if limit <= 0 {
		return nil, "", nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.reading()
	for _, p := range distinct(partitions) {
		if p < at.partition {
			continue
		}
		if p > at.partition {
			at = cursor{partition: p}
		}
		for _, q := range s.partitions[p].behind(at.ticket) {
			if q.stale() {
				continue
			}
			waited := now.Sub(q.row.QueuedAt)
			if waited < age && q.row.delayed {
				continue
			}
			if waited < age {
				break // the rest of the queue is younger
			}
			if len(runs) == limit {
				return runs, at.String(), nil
			}
			at.ticket = q.ticket
			runs = append(runs, q.row.queuedRun(waited))
		}
	}
	return runs, "", nil
}

func (r *sessionRow) queuedRun(age time.Duration) store.QueuedRun {
	return store.QueuedRun{SKey: r.SKey, Tenant: r.Tenant, Gen: r.Gen, RunID: r.RunID, RunClass: r.RunClass, Age: age}
}

// distinct returns the partitions that exist, once each, in order.
func distinct(partitions []int) []int {
	p := slices.DeleteFunc(slices.Clone(partitions), func(p int) bool { return p < 0 || p >= session.Partitions })
	slices.Sort(p)
	return slices.Compact(p)
}

// DueDeliveries implements store.Sweep.
func (s *Store) DueDeliveries(ctx context.Context, limit int) ([]store.Doorbell, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list due deliveries: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	var out []store.Doorbell
	for len(out) < limit && len(s.due) > 0 && !s.due[0].dueAt().After(now) {
		o := s.due[0]
		out = append(out, o.doorbell())
		o.nextAt = now.Add(nextRing)
		heap.Fix(&s.due, o.place)
	}
	return out, nil
}

// Backlog implements store.Sweep.
func (s *Store) Backlog(ctx context.Context, partitions []int) (running, queued int, err error) {
	if err := alive(ctx); err != nil {
		return 0, 0, fmt.Errorf("count backlog: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range distinct(partitions) {
		running += len(s.partitions[p].running)
		queued += s.partitions[p].queued
	}
	return running, queued, nil
}

// WakeDue implements store.Sweep. Those that are due the longest come first.
func (s *Store) WakeDue(ctx context.Context, partitions []int, fresh []uuid.UUID) ([]store.QueuedRun, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("wake due sessions: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	due := s.dueSessions(partitions, now)
	due = due[:min(len(due), len(fresh))]
	for i, r := range due {
		if _, used := s.runs[fresh[i]]; r.collecting() && (used || fresh[i] == uuid.Nil) {
			return nil, fmt.Errorf("wake due sessions: %w: run id: not fresh", store.ErrRejected)
		}
	}
	out := make([]store.QueuedRun, 0, len(due))
	for i, r := range due {
		if r.collecting() {
			s.begin(r, fresh[i], "", now)
		} else {
			s.requeue(r, now)
		}
		out = append(out, r.queuedRun(0))
	}
	return out, nil
}

func (s *Store) dueSessions(partitions []int, now time.Time) []*sessionRow {
	var due []*sessionRow
	for _, p := range distinct(partitions) {
		for r := range s.partitions[p].waiting {
			if !r.WakeAt.IsZero() && !r.WakeAt.After(now) {
				due = append(due, r)
			}
		}
	}
	slices.SortFunc(due, func(a, b *sessionRow) int {
		return cmp.Or(a.WakeAt.Compare(b.WakeAt), cmp.Compare(a.SKey, b.SKey))
	})
	return due
}

// RunningByTenant implements store.Sweep.
func (s *Store) RunningByTenant(ctx context.Context) (map[string]int, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("count running sessions: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[string]int{}
	for i := range s.partitions {
		for r := range s.partitions[i].running {
			out[r.Tenant]++
		}
	}
	return out, nil
}
