package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// partition knows the active sessions of a partition and queues those that wait for a worker, oldest first.
type partition struct {
	queued int
	// running and waiting are the sessions in those states.
	running, waiting map[*sessionRow]struct{}
	// queue is in the order of its tickets. A session that leaves drops its ticket and its entry stays until there are
	// more stale entries than queued sessions, so that leaving costs nothing.
	queue []queueEntry
	last  int64
}

type queueEntry struct {
	ticket int64
	row    *sessionRow
}

func (q queueEntry) stale() bool { return q.row.ticket != q.ticket }

// move puts the session into a state; every step into queued starts its age anew.
func (s *Store) move(r *sessionRow, to store.SessionState, now time.Time) {
	p := &s.partitions[r.Partition]
	p.leave(r)
	if r.State != to {
		r.WaitKind, r.WakeAt = "", time.Time{}
	}
	r.State, r.delayed = to, false
	if to == store.Queued {
		r.QueuedAt = now
	}
	p.enter(r)
}

func (p *partition) enter(r *sessionRow) {
	switch r.State {
	case store.Running:
		p.running[r] = struct{}{}
	case store.Queued:
		p.queued++
		p.last++
		r.ticket = p.last
		p.queue = append(p.queue, queueEntry{ticket: p.last, row: r})
	case store.Waiting:
		p.waiting[r] = struct{}{}
	case store.Idle, store.Paused:
	}
}

func (p *partition) leave(r *sessionRow) {
	switch r.State {
	case store.Running:
		delete(p.running, r)
	case store.Queued:
		p.queued--
		r.ticket = 0
		if len(p.queue) > 2*p.queued+16 {
			p.queue = slices.DeleteFunc(p.queue, queueEntry.stale)
		}
	case store.Waiting:
		delete(p.waiting, r)
	case store.Idle, store.Paused:
	}
}

// behind returns the queue behind a ticket.
func (p *partition) behind(ticket int64) []queueEntry {
	i, found := slices.BinarySearchFunc(p.queue, ticket, func(q queueEntry, t int64) int { return cmp.Compare(q.ticket, t) })
	if found {
		i++
	}
	return p.queue[i:]
}
