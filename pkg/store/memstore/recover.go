package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// RunningRuns implements store.Recovery. The cursor is the skey of the last run of a page.
func (s *Store) RunningRuns(
	ctx context.Context, partitions []int, after string, limit int,
) (runs []store.ActiveRun, next string, err error) {
	if err := alive(ctx); err != nil {
		return nil, "", fmt.Errorf("list running runs: %w", err)
	}
	if limit <= 0 {
		return nil, "", nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.reading()
	var rows []*sessionRow
	for _, p := range distinct(partitions) {
		for r := range s.partitions[p].running {
			if r.SKey > after {
				rows = append(rows, r)
			}
		}
	}
	slices.SortFunc(rows, func(a, b *sessionRow) int { return strings.Compare(a.SKey, b.SKey) })
	if len(rows) > limit {
		rows = rows[:limit]
		next = rows[limit-1].SKey
	}
	for _, r := range rows {
		runs = append(runs, store.ActiveRun{
			SKey: r.SKey, Tenant: r.Tenant, RunClass: r.RunClass, Gen: r.Gen, RunID: r.RunID, Owner: r.Owner,
			Silent: s.silence(r.Owner, now), Untouched: now.Sub(r.TouchedAt),
			Attempt: r.Attempt, Stall: r.Stall, StallKey: r.StallKey,
		})
	}
	return runs, next, nil
}

// silence is how long ago the worker of an owner has said that it lives, negative if it never has.
func (s *Store) silence(owner string, now time.Time) time.Duration {
	worker, _, _ := strings.Cut(owner, "/")
	if w, known := s.workers[worker]; known {
		return now.Sub(w.at)
	}
	return -1
}

// Takeover implements store.Recovery: t6. Only a running session has an owner.
func (s *Store) Takeover(ctx context.Context, t store.Takeover) (store.TakenOver, error) {
	if err := alive(ctx); err != nil {
		return store.TakenOver{}, fmt.Errorf("take over: %w", err)
	}
	var c checker
	c.text("takeover", t.SKey, t.Owner, t.StallKey)
	if c.err != nil {
		return store.TakenOver{}, fmt.Errorf("take over: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sessions[t.SKey]
	if r == nil || r.State != store.Running || r.Gen != t.Gen || r.Owner != t.Owner {
		return store.TakenOver{}, fmt.Errorf("take over: %w", store.ErrFenced)
	}
	r.Attempt++
	r.stalled(t.StallKey)
	s.requeue(r, s.tick())
	r.QueuedAt, r.delayed = r.QueuedAt.Add(t.Delay), t.Delay > 0
	return store.TakenOver{Gen: r.Gen, RunID: r.RunID, Attempt: r.Attempt, Stall: r.Stall}, nil
}

// stalled counts takeovers in a row with one call open; without an open call it proves nothing.
func (r *sessionRow) stalled(key string) {
	switch key {
	case "":
	case r.StallKey:
		r.Stall++
	default:
		r.Stall, r.StallKey = 1, key
	}
}

// GiveUp implements store.Recovery: the dead form of t4. The run keeps no owner, so that no worker takes it for its own.
func (s *Store) GiveUp(ctx context.Context, g store.GiveUp) (store.FinishResult, error) {
	f := store.Finish{
		Fence: store.Fence{SKey: g.SKey, Gen: g.Gen, RunID: g.RunID}, RunGen: g.RunGen, From: g.From, To: g.To,
		State: store.RunDead, Error: g.Error, Messages: g.Messages, Replies: g.Replies,
		NextRunID: g.NextRunID, NextTraceparent: g.NextTraceparent,
	}
	if err := checkGiveUp(ctx, &g, &f); err != nil {
		return store.FinishResult{}, fmt.Errorf("give up run: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sessions[g.SKey]
	if !r.current(g.Gen, g.RunID) || r.Owner != g.Owner || r.State == store.Paused {
		return store.FinishResult{Outcome: store.FinishFenced}, nil
	}
	if err := s.checkEndingKeys(r, &f); err != nil {
		return store.FinishResult{}, fmt.Errorf("give up run: %w", err)
	}
	now := s.tick()
	s.runs[g.RunID].putCalls(g.Calls)
	s.bury(g.Letter, now)
	return s.end(r, &f, now), nil
}

func checkGiveUp(ctx context.Context, g *store.GiveUp, f *store.Finish) error {
	if err := checkEnding(ctx, f); err != nil {
		return err
	}
	var c checker
	c.text("owner", g.Owner)
	c.calls(g.Calls)
	c.letter(&g.Letter)
	if g.Letter.ID == uuid.Nil {
		c.reject("dead letter", "no id")
	}
	return c.err
}

// Reclaim implements store.Recovery.
func (s *Store) Reclaim(ctx context.Context, rs []store.Reclaim) ([]store.Reclaimed, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("reclaim runs: %w", err)
	}
	var c checker
	for i := range rs {
		c.text("fence", rs[i].SKey, rs[i].Owner, rs[i].Fresh)
		if rs[i].Fresh == "" {
			c.reject("fresh owner", "empty")
		}
	}
	if c.err != nil {
		return nil, fmt.Errorf("reclaim runs: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	out := make([]store.Reclaimed, len(rs))
	for i := range rs {
		r := s.sessions[rs[i].SKey]
		if !r.holds(rs[i].Fence) {
			out[i].Err = store.ErrFenced
			continue
		}
		r.Gen++
		r.Owner, r.TouchedAt = rs[i].Fresh, now
		run := s.runs[r.RunID]
		run.Owner, run.LastGen = r.Owner, r.Gen
		out[i].Gen = r.Gen
	}
	return out, nil
}

// RunToolCalls implements store.Recovery.
func (s *Store) RunToolCalls(ctx context.Context, id uuid.UUID) ([]store.ToolCall, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read tool calls of run %s: %w", id, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if run := s.runs[id]; run != nil {
		return slices.Clone(run.calls), nil
	}
	return nil, nil
}

// StaleStops implements store.Recovery. The oldest stops come first.
func (s *Store) StaleStops(ctx context.Context, partitions []int, age time.Duration, limit int) ([]store.StaleStop, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list stale stops: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.reading()
	var rows []*sessionRow
	for _, p := range distinct(partitions) {
		for _, r := range s.partitions[p].active() {
			if r.RunID != uuid.Nil && r.StopRun == r.RunID && now.Sub(r.stopAt) > age {
				rows = append(rows, r)
			}
		}
	}
	slices.SortFunc(rows, func(a, b *sessionRow) int { return a.stopAt.Compare(b.stopAt) })
	var out []store.StaleStop
	for _, r := range rows[:min(len(rows), max(0, limit))] {
		out = append(out, store.StaleStop{SKey: r.SKey, Gen: r.Gen, RunID: r.RunID, State: r.State, Owner: r.Owner})
	}
	return out, nil
}

// active returns the sessions that are queued, running or waiting.
func (p *partition) active() []*sessionRow {
	rows := slices.AppendSeq(slices.Collect(maps.Keys(p.running)), maps.Keys(p.waiting))
	for _, q := range p.queue {
		if !q.stale() {
			rows = append(rows, q.row)
		}
	}
	return rows
}

// EndFrozen implements store.Recovery. No client can hold a transaction open here.
func (s *Store) EndFrozen(ctx context.Context, _ time.Duration) (int, error) {
	if err := alive(ctx); err != nil {
		return 0, fmt.Errorf("end frozen sessions: %w", err)
	}
	return 0, nil
}
