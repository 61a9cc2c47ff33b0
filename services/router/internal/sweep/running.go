package sweep

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
)

const (
	// deadAfter is the silence after which a worker counts as dead.
	deadAfter = 15 * time.Second
	// absentFor is how long the lease of a run may be gone whose worker lives: it is about to claim it again.
	absentFor = 30 * time.Second
)

// Why a run is taken over, for operators.
const (
	reasonSilent = "the worker was lost"
	reasonBoot   = "the worker was lost and has begun anew"
	reasonLease  = "the worker lives and has lost the run's lease"
)

// takeOver is rule (b): running sessions whose owner is gone.
func (s *Sweeper) takeOver(ctx context.Context, owned []int) (taken int, err error) {
	for range maxPages {
		page, err := s.runningPage(ctx, owned)
		if err != nil {
			return taken, err
		}
		n, err := s.takeOverPage(ctx, page)
		taken += n
		if err != nil {
			return taken, err
		}
		if s.running == "" {
			s.seen.passEnded()
			break
		}
	}
	return taken, nil
}

func (s *Sweeper) runningPage(ctx context.Context, owned []int) ([]store.ActiveRun, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, next, err := s.Store.RunningRuns(ctx, owned, s.running, pageSize)
	s.running = next // "" after an error: begin again
	return page, err
}

func (s *Sweeper) takeOverPage(ctx context.Context, page []store.ActiveRun) (int, error) {
	if len(page) == 0 {
		return 0, nil
	}
	boots, err := s.boots(ctx)
	if err != nil {
		return 0, err
	}
	var held []*lease.Lease // nil: nothing is known of leases, the heartbeats decide
	if !s.redis.cautious(time.Now()) {
		held = s.lookup(ctx, column(page, func(r store.ActiveRun) string { return r.SKey }))
	}
	var lost []lostRun
	for i, run := range page {
		view := view{boot: boots[workerOf(run.Owner)], leases: held != nil}
		if view.leases {
			view.lease = held[i]
		}
		if reason := s.seen.judge(run, view, time.Now()); reason != "" {
			lost = append(lost, lostRun{run, reason})
		}
	}
	var taken atomic.Int64
	err = each(lost, func(l lostRun) error {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		result, err := s.Taker.Take(call, l.ActiveRun, l.reason, 0)
		if result.Outcome != takeover.Moved {
			taken.Add(1)
		}
		return err
	})
	return int(taken.Load()), err
}

type lostRun struct {
	store.ActiveRun
	reason string
}

// boots are the processes behind the names of workers. They are read after the runs: a process that has claimed one has
// told its name before.
func (s *Sweeper) boots(ctx context.Context) (map[string]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	workers, err := s.Store.Workers(ctx)
	boots := make(map[string]uuid.UUID, len(workers))
	for _, w := range workers {
		boots[w.WorkerID] = w.Boot
	}
	return boots, err
}

func workerOf(owner string) string {
	worker, _, _ := strings.Cut(owner, "/")
	return worker
}

// sightings are the running runs that were seen, and what was known of them.
type sightings struct {
	runs map[sighting]*sighted
	pass int
}

// sighting is one ownership of a run.
type sighting struct {
	skey, owner string
	gen         int64
}

type sighted struct {
	// boot is the process of its worker when the run was first seen; uuid.Nil: none was known.
	boot uuid.UUID
	// absent is since when its lease is gone, zero if it is there or if nothing is known of leases.
	absent time.Time
	pass   int
}

// view is what is known of the owner of a run, beside its heartbeats.
type view struct {
	boot uuid.UUID
	// leases: Redis has answered. lease is what it said, nil for none.
	leases bool
	lease  *lease.Lease
}

// judge says why a run is taken over, "" if it is not.
func (s *sightings) judge(run store.ActiveRun, v view, now time.Time) string {
	seen := s.see(run, v.boot)
	if !v.leases {
		seen.absent = time.Time{}
	}
	switch {
	case v.leases && holds(v.lease, run):
		seen.absent = time.Time{}
		return ""
	case silent(run):
		return reasonSilent
	case v.boot != seen.boot:
		return reasonBoot
	case !v.leases:
		return ""
	case seen.absent.IsZero():
		seen.absent = now
		return ""
	case now.Sub(seen.absent) < absentFor:
		return ""
	default:
		return reasonLease
	}
}

func (s *sightings) see(run store.ActiveRun, boot uuid.UUID) *sighted {
	key := sighting{run.SKey, run.Owner, run.Gen}
	seen := s.runs[key]
	if seen == nil {
		seen = &sighted{}
		if s.runs == nil {
			s.runs = map[sighting]*sighted{}
		}
		s.runs[key] = seen
	}
	if seen.boot == uuid.Nil {
		seen.boot = boot
	}
	seen.pass = s.pass
	return seen
}

// passEnded forgets the runs that are not running any more: every one has been looked at.
func (s *sightings) passEnded() {
	for key, seen := range s.runs {
		if seen.pass != s.pass {
			delete(s.runs, key)
		}
	}
	s.pass++
}

// holds reports whether a lease is that of the run's owner; one of another generation or owner does not count.
func holds(l *lease.Lease, run store.ActiveRun) bool {
	return l != nil && l.Gen == run.Gen && l.Holder == run.Owner
}

// silent reports whether the worker of a run is dead. One that has never been heard of may only just have begun.
func silent(run store.ActiveRun) bool {
	if run.Silent < 0 {
		return run.Untouched > deadAfter
	}
	return run.Silent > deadAfter
}
