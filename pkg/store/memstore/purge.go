package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Purge implements store.Sweep. What a dead letter that nobody has replayed tells of is kept, and so is the run of a
// reply that is on its way.
func (s *Store) Purge(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := alive(ctx); err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := purge{store: s, before: s.tick().Add(-age), limit: limit, open: map[string]bool{}}
	for _, d := range s.dead {
		if d.Replays == 0 {
			p.open[d.Ref] = true
		}
	}
	removed := 0
	for _, r := range s.sessions {
		removed += p.session(r)
	}
	return removed + p.letters(), nil
}

// purge is one call: rows from before a time, at most limit of a kind.
type purge struct {
	store  *Store
	before time.Time
	limit  int
	// open holds what the dead letters that nobody has replayed refer to.
	open                  map[string]bool
	rows, outs, runs, bad int
}

// take reports whether one more row of a kind may be removed.
func (p *purge) take(n *int) bool {
	if *n >= p.limit {
		return false
	}
	*n++
	return true
}

// session removes rows of one session: first those that point at others.
func (p *purge) session(r *sessionRow) int {
	before := p.rows + p.outs + p.runs
	p.inbox(r)
	p.outbox(r)
	r.final = slices.DeleteFunc(r.final, func(run *runRow) bool {
		if !run.EndedAt.Before(p.before) || p.open[run.ID.String()] || run.delivers() || !p.take(&p.runs) {
			return false
		}
		delete(p.store.runs, run.ID)
		return true
	})
	return p.rows + p.outs + p.runs - before
}

func (p *purge) inbox(r *sessionRow) {
	for i, in := range r.inbox[:r.DoneSeq] {
		if in == nil || !in.at.Before(p.before) || p.kept(r.coveredBy(in.Seq)) || !p.take(&p.rows) {
			continue
		}
		r.inbox[i] = nil
		delete(r.uids, in.UID)
		for _, uid := range in.items {
			if r.items[uid] == in.Seq {
				delete(r.items, uid)
			}
		}
	}
}

// kept reports whether a dead letter tells of the run.
func (p *purge) kept(run *runRow) bool { return run != nil && p.open[run.ID.String()] }

func (p *purge) outbox(r *sessionRow) {
	for i, o := range r.outbox[:r.OutSent] {
		if o == nil || !o.CreatedAt.Before(p.before) || p.open[o.ref()] || !p.take(&p.outs) {
			continue
		}
		r.outbox[i] = nil
		delete(r.dkeys, o.DKey)
		if run := p.store.runs[o.RunID]; run != nil {
			run.replies = slices.DeleteFunc(run.replies, func(of *outRow) bool { return of == o })
		}
	}
}

// delivers reports whether a reply of the run is on its way.
func (run *runRow) delivers() bool {
	return slices.ContainsFunc(run.replies, func(o *outRow) bool { return o.state == store.OutPending })
}

func (p *purge) letters() int {
	for id, d := range p.store.dead {
		if d.Replays > 0 && d.ReplayedAt.Before(p.before) && p.take(&p.bad) {
			delete(p.store.dead, id)
		}
	}
	return p.bad
}
