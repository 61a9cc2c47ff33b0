package memstore

import (
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// reset is the fence of /new for the row LastSeq: the current run ends as cancelled and covers it, a cancelled run is
// made for rows that wait without one, and if nothing waits the next run covers the row. Returns the run that it ended.
func (s *Store) reset(r *sessionRow, m *store.AdmitMessage, now time.Time) (fenced uuid.UUID) {
	fenced = r.RunID
	r.Gen++
	r.Owner, r.StopRun, r.Attempt, r.Stall, r.TouchedAt = "", uuid.Nil, 0, 0, now
	switch {
	case fenced != uuid.Nil:
		s.cover(r, s.runs[fenced], now)
	case r.DoneSeq < r.LastSeq-1:
		r.RunID = m.RunID
		s.newRun(r, m.Traceparent, now)
		s.cover(r, s.runs[m.RunID], now)
	}
	r.RunID = uuid.Nil
	to := store.Idle
	if r.State == store.Paused {
		to = store.Paused
	}
	s.move(r, to, now)
	s.converse(r, m, now)
	return fenced
}

// cover ends the run as cancelled for all rows up to the newest. It keeps no owner, so that a worker that repeats its
// own cancelled form does not take it for its own.
func (s *Store) cover(r *sessionRow, run *runRow, now time.Time) {
	r.close(run, &store.Finish{From: r.DoneSeq + 1, To: r.LastSeq, State: store.RunCancelled}, now)
	r.DoneSeq = r.LastSeq
}
