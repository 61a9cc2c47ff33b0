package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Claim implements store.Runs.
func (s *Store) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claimed, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("claim runs: %w", err)
	}
	var c checker
	for _, q := range reqs {
		c.text("fence", q.SKey, q.Owner)
		c.json("pins", q.Pins)
	}
	if c.err != nil {
		return nil, fmt.Errorf("claim runs: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	var out []store.Claimed
	for _, q := range reqs {
		if claimed, ok := s.claim(q, now); ok {
			out = append(out, claimed)
		}
	}
	return out, nil
}

// claim is t2_claim: from queued to running, the generation stays. A claim that is repeated, because its outcome was
// unknown, finds its own owner and is answered again.
func (s *Store) claim(q store.ClaimRequest, now time.Time) (store.Claimed, bool) {
	r := s.sessions[q.SKey]
	if r == nil || !r.claimable(q.Fence) && !r.holds(q.Fence) {
		return store.Claimed{}, false
	}
	s.move(r, store.Running, now)
	r.Owner, r.TouchedAt = q.Owner, now
	run := s.runs[r.RunID]
	run.State, run.Owner, run.LastGen = store.RunRunning, q.Owner, r.Gen
	run.Attempts++
	if run.pins == nil {
		run.pins = cloneJSON(q.Pins)
	}
	if run.StartedAt.IsZero() {
		run.StartedAt = now
	}
	return store.Claimed{
		Fence: q.Fence, Tenant: r.Tenant, SessionID: r.SessionID, AgentID: r.AgentID,
		DoneSeq: r.DoneSeq, LastSeq: r.LastSeq, CtlSeq: r.CtlSeq, StopRun: r.StopRun,
		Attempt: r.Attempt, FirstGen: run.FirstGen, Attempts: run.Attempts, Pins: run.pins, OutSeq: r.OutSeq,
		Inbox: r.behind(r.DoneSeq), ToolCalls: slices.Clone(run.calls),
	}, true
}

func (r *sessionRow) claimable(f store.Fence) bool {
	return r.State == store.Queued && r.Gen == f.Gen && r.RunID == f.RunID
}

// Checkpoint implements store.Runs.
func (s *Store) Checkpoint(ctx context.Context, cps []store.Checkpoint) ([]store.CheckpointResult, error) {
	if err := checkCheckpoints(ctx, cps); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	out := make([]store.CheckpointResult, len(cps))
	for i := range cps {
		out[i] = s.checkpoint(&cps[i], now)
	}
	return out, nil
}

// Handover implements store.Runs: t5, a checkpoint that queues the run under the next generation.
func (s *Store) Handover(ctx context.Context, cps []store.Checkpoint) ([]store.HandoverResult, error) {
	if err := checkCheckpoints(ctx, cps); err != nil {
		return nil, fmt.Errorf("hand over: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	out := make([]store.HandoverResult, len(cps))
	for i := range cps {
		if out[i].Err = s.checkpoint(&cps[i], now).Err; out[i].Err == nil {
			out[i].Gen = s.requeue(s.sessions[cps[i].SKey], now)
		}
	}
	return out, nil
}

// requeue takes the current run from its owner and returns the generation under which it is queued.
func (s *Store) requeue(r *sessionRow, now time.Time) int64 {
	r.Gen++
	r.Owner = ""
	s.move(r, store.Queued, now)
	run := s.runs[r.RunID]
	run.State, run.Owner, run.LastGen = store.RunQueued, "", r.Gen
	return r.Gen
}

// Suspend implements store.Runs: t7, a checkpoint after which the run waits. The wait ends at once if a row that wakes has
// come which the worker has not seen.
func (s *Store) Suspend(ctx context.Context, ss []store.Suspension) ([]store.SuspendResult, error) {
	cps := make([]store.Checkpoint, len(ss))
	for i := range ss {
		cps[i] = ss[i].Checkpoint
	}
	if err := checkCheckpoints(ctx, cps); err != nil {
		return nil, fmt.Errorf("suspend runs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	out := make([]store.SuspendResult, len(ss))
	for i := range ss {
		out[i] = s.suspend(&ss[i], now)
	}
	return out, nil
}

func (s *Store) suspend(q *store.Suspension, now time.Time) store.SuspendResult {
	stored := s.checkpoint(&q.Checkpoint, now)
	if stored.Err != nil {
		return store.SuspendResult{Err: stored.Err}
	}
	r := s.sessions[q.SKey]
	if r.WakeSeq > q.Seen {
		s.requeue(r, now)
	} else {
		s.interrupt(r, store.Waiting, now)
		r.WaitKind, r.WakeAt = q.Kind, q.WakeAt
	}
	return store.SuspendResult{Gen: r.Gen, State: r.State, FirstOut: stored.FirstOut}
}

// interrupt takes the current run, if there is one, from its owner and lets it wait.
func (s *Store) interrupt(r *sessionRow, to store.SessionState, now time.Time) {
	r.Gen++
	r.Owner = ""
	s.move(r, to, now)
	if run := s.runs[r.RunID]; run != nil {
		run.State, run.Owner, run.LastGen = store.RunWaiting, "", r.Gen
	}
}

func checkCheckpoints(ctx context.Context, cps []store.Checkpoint) error {
	if err := alive(ctx); err != nil {
		return err
	}
	var c checker
	for i := range cps {
		c.text("fence", cps[i].SKey, cps[i].Owner)
		c.messages(cps[i].Messages)
		c.calls(cps[i].ToolCalls)
		c.ownReplies(cps[i].Replies)
	}
	return c.err
}

func (c *checker) calls(calls []store.ToolCall) {
	for _, call := range calls {
		c.text("tool call", call.CallID, call.Name, call.Effect, string(call.State))
		c.json("tool result", call.Result)
	}
}

// ownReplies checks the replies of a checkpoint, each of which has a dkey of its own.
func (c *checker) ownReplies(replies []store.NewReply) {
	seen := map[string]bool{}
	for i := range replies {
		n := &replies[i]
		c.reply(n)
		if n.DKey == "" || seen[n.DKey] {
			c.reject("reply", "no dkey of its own")
		}
		seen[n.DKey] = true
	}
}

// checkpoint is t3.
func (s *Store) checkpoint(cp *store.Checkpoint, now time.Time) store.CheckpointResult {
	r := s.sessions[cp.SKey]
	if !r.holds(cp.Fence) {
		return store.CheckpointResult{Err: store.ErrFenced}
	}
	r.TouchedAt = now
	run := s.runs[r.RunID]
	r.record(run, cp.RunGen, cp.Messages)
	run.putCalls(cp.ToolCalls)
	for _, seq := range cp.Taken {
		if seq >= 1 && seq <= int64(len(r.inbox)) && r.inbox[seq-1] != nil {
			r.inbox[seq-1].RunID = run.ID
		}
	}
	return store.CheckpointResult{
		Signals:  store.Signals{LastSeq: r.LastSeq, CtlSeq: r.CtlSeq, StopRun: r.StopRun},
		FirstOut: s.reply(r, run, r.unwritten(cp.Replies), run.traceparent, now),
	}
}

// unwritten returns those of the replies that no earlier try has written.
func (r *sessionRow) unwritten(replies []store.NewReply) []store.NewReply {
	return slices.DeleteFunc(slices.Clone(replies), func(n store.NewReply) bool {
		_, written := r.dkeys[n.DKey]
		return written
	})
}

func (c *checker) messages(msgs []store.Message) {
	for i := range msgs {
		c.text("message role", msgs[i].Role)
		c.json("message content", msgs[i].Content)
	}
}

// Heartbeat implements store.Runs.
func (s *Store) Heartbeat(ctx context.Context, w store.WorkerBeat) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	var c checker
	c.text("worker id", w.WorkerID)
	if c.err != nil {
		return fmt.Errorf("heartbeat: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers[w.WorkerID] = workerRow{WorkerBeat: w, at: s.tick()}
	return nil
}
