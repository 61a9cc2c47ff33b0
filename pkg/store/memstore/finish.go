package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Finish implements store.Runs.
func (s *Store) Finish(ctx context.Context, fins []store.Finish) ([]store.FinishResult, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("finish runs: %w", err)
	}
	if err := checkFinishes(fins); err != nil {
		return nil, fmt.Errorf("finish runs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range fins {
		if err := s.checkFinishKeys(&fins[i]); err != nil {
			return nil, fmt.Errorf("finish runs: %w", err)
		}
	}
	now := s.tick()
	out := make([]store.FinishResult, len(fins))
	for i := range fins {
		out[i] = s.finish(&fins[i], now)
	}
	return out, nil
}

func checkFinishes(fins []store.Finish) error {
	var c checker
	for i := range fins {
		switch fins[i].State {
		case store.RunDone, store.RunFailed, store.RunCancelled:
		default:
			c.reject("run state", "not one that a run can finish with")
		}
		c.finish(&fins[i])
	}
	return c.err
}

func (c *checker) finish(f *store.Finish) {
	c.text("finish", f.SKey, f.Owner, f.Error, f.NextTraceparent)
	c.json("usage", f.Usage)
	c.messages(f.Messages)
	for j := range f.Replies {
		c.reply(&f.Replies[j])
	}
}

// checkFinishKeys refuses a finish that would be written and would violate a unique key.
func (s *Store) checkFinishKeys(f *store.Finish) error {
	r := s.sessions[f.SKey]
	if !r.holds(f.Fence) || r.stopped(f) {
		return nil
	}
	return s.checkEndingKeys(r, f)
}

func (s *Store) checkEndingKeys(r *sessionRow, f *store.Finish) error {
	var c checker
	if _, used := s.runs[f.NextRunID]; r.WantSeq > f.To && (used || f.NextRunID == uuid.Nil) {
		c.reject("next run id", "not fresh")
	}
	seen := map[string]bool{}
	for i := range f.Replies {
		dkey := replyDKey(f.RunID, i, &f.Replies[i])
		if s.hasDKey(f.SKey, dkey) || seen[dkey] {
			c.reject("reply", "dkey is in use")
		}
		seen[dkey] = true
	}
	return c.err
}

// finish is t4 and, for RunCancelled, its cancelled form.
func (s *Store) finish(f *store.Finish, now time.Time) store.FinishResult {
	r := s.sessions[f.SKey]
	if !r.holds(f.Fence) {
		return s.finishedBefore(f)
	}
	if r.stopped(f) {
		return store.FinishResult{Outcome: store.FinishStopped}
	}
	return s.end(r, f, now)
}

// StopQueued implements store.Runs: t4_stop_queued. The run keeps no owner, so that no worker takes it for its own.
func (s *Store) StopQueued(ctx context.Context, q store.QueuedStop) (store.FinishResult, error) {
	return s.cancel(ctx, &q, func(r *sessionRow) bool { return r.State == store.Queued })
}

// EndStopped implements store.Recovery.
func (s *Store) EndStopped(ctx context.Context, q store.QueuedStop) (store.FinishResult, error) {
	return s.cancel(ctx, &q, func(r *sessionRow) bool { return r.State != store.Paused })
}

// cancel ends a stopped run from outside, if its session is in one of some states.
func (s *Store) cancel(ctx context.Context, q *store.QueuedStop, in func(*sessionRow) bool) (store.FinishResult, error) {
	f := store.Finish{
		Fence: store.Fence{SKey: q.SKey, Gen: q.Gen, RunID: q.RunID}, From: q.From, To: q.To, State: store.RunCancelled,
		Replies: q.Replies, NextRunID: q.NextRunID, NextTraceparent: q.NextTraceparent,
	}
	if err := checkEnding(ctx, &f); err != nil {
		return store.FinishResult{}, fmt.Errorf("end stopped run: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sessions[q.SKey]
	if !r.current(q.Gen, q.RunID) || r.StopRun != q.RunID || !in(r) {
		return store.FinishResult{Outcome: store.FinishFenced}, nil
	}
	if err := s.checkEndingKeys(r, &f); err != nil {
		return store.FinishResult{}, fmt.Errorf("end stopped run: %w", err)
	}
	return s.end(r, &f, s.tick()), nil
}

func checkEnding(ctx context.Context, f *store.Finish) error {
	if err := alive(ctx); err != nil {
		return err
	}
	var c checker
	c.finish(f)
	return c.err
}

// end writes what a finish brings.
func (s *Store) end(r *sessionRow, f *store.Finish, now time.Time) store.FinishResult {
	run := s.runs[f.RunID]
	r.record(run, f.RunGen, f.Messages)
	run.Error, run.Usage = f.Error, cloneJSON(f.Usage)
	r.close(run, f, now)
	s.release(r, f, now)
	first := s.reply(r, run, f.Replies, run.traceparent, now)
	return store.FinishResult{
		Known: true, Gen: r.Gen, RunID: r.RunID, FirstOut: first, Settled: r.OutSent == r.OutSeq,
	}
}

// close gives the run its final state and range.
func (r *sessionRow) close(run *runRow, f *store.Finish, now time.Time) {
	if f.State == store.RunCancelled || f.State == store.RunDead {
		run.closeCalls()
	}
	run.State, run.Owner = f.State, f.Owner
	run.FromSeq, run.ToSeq, run.EndedAt = f.From, f.To, now
	r.final = append(r.final, run)
	c := r.conversation(run.SessionID)
	c.Runs++
	c.LastRunGen = max(c.LastRunGen, run.FirstGen)
}

// stopped reports whether a stop came before a finish that is not the cancelled form.
func (r *sessionRow) stopped(f *store.Finish) bool {
	return r.StopRun == f.RunID && f.State != store.RunCancelled
}

// release ends the session's run and starts the next one if rows behind it want one.
func (s *Store) release(r *sessionRow, f *store.Finish, now time.Time) {
	r.DoneSeq, r.Owner, r.StopRun, r.RunID = f.To, "", uuid.Nil, uuid.Nil
	r.Attempt, r.Stall, r.TouchedAt = 0, 0, now
	if r.WantSeq > f.To {
		s.begin(r, f.NextRunID, f.NextTraceparent, now)
		return
	}
	r.Gen++
	s.move(r, store.Idle, now)
}

// finishedBefore tells a finish that had committed from one that is fenced.
func (s *Store) finishedBefore(f *store.Finish) store.FinishResult {
	run := s.runs[f.RunID]
	if run != nil && run.SKey == f.SKey && run.State == f.State && run.Owner == f.Owner {
		return store.FinishResult{Outcome: store.Finished}
	}
	return store.FinishResult{Outcome: store.FinishFenced}
}
