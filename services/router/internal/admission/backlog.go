package admission

import (
	"container/list"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// backlogSessions bounds the sessions that a router remembers to be busy.
const backlogSessions = 16_384

// backlog remembers sessions, those that it heard of last. It belongs to the loop. What it knows is a hint that spares
// reads, and tells lifecycle events apart: a session that it has forgotten, or that another router had before, costs at
// most one batch that is not counted.
type backlog struct {
	bySession map[string]*list.Element // of backlogged
	// recent has the session that was heard of last in front.
	recent *list.List
}

// backlogged is what is remembered of a session.
type backlogged struct {
	skey string
	// stored are the rows that no run had covered when the last one was admitted, coming the messages that were read since.
	stored, coming int64
	// full is where the session stood when as many messages as may wait did.
	full standing
	// newest is the last message that wants an answer.
	newest newest
	// interrupted is the run that was last said to be.
	interrupted uuid.UUID
}

// standing tells whether anything can have been taken out of a session since; the zero value is none of any session.
type standing struct {
	known bool
	done  int64
	run   uuid.UUID
}

func standingOf(s store.Session) standing {
	return standing{known: true, done: s.DoneSeq, run: s.RunID}
}

// newest is a message that was stored, and how it wants to be taken. run was current then; began: it was made for it.
type newest struct {
	seq    int64
	policy event.Policy
	sender string
	run    uuid.UUID
	began  bool
}

func newBacklog() *backlog {
	return &backlog{bySession: map[string]*list.Element{}, recent: list.New()}
}

// of returns what is remembered of a session.
func (b *backlog) of(skey string) *backlogged {
	if e := b.bySession[skey]; e != nil {
		b.recent.MoveToFront(e)
		return e.Value.(*backlogged)
	}
	known := &backlogged{skey: skey}
	b.bySession[skey] = b.recent.PushFront(known)
	if len(b.bySession) > backlogSessions {
		oldest := b.recent.Back()
		delete(b.bySession, oldest.Value.(*backlogged).skey)
		b.recent.Remove(oldest)
	}
	return known
}

// atMost is how many messages may wait. It counts all rows, so it never tells too few of a session that it knows.
func (k *backlogged) atMost() int64 { return k.stored + k.coming }

// take notes what the store has told of a message.
func (k *backlogged) take(c *candidate, res store.Admitted) {
	k.stored = res.Seq - res.DoneSeq
	if c.row.WantsRun && res.Kind != store.KindRefused {
		k.newest = newest{
			seq: res.Seq, policy: policyOf(c.event), sender: c.event.Source.UserID,
			run: res.RunID, began: res.Created && !k.endsWindow(res),
		}
	}
}

// joins reports whether the message becomes one turn with the newest one before it, which still waits. A run that has not
// begun chooses its messages later.
func (k *backlogged) joins(c *candidate, res store.Admitted) bool {
	last := k.newest
	if last.seq <= res.DoneSeq || last.run != res.RunID || last.began && res.State != store.Queued {
		return false
	}
	switch policy := policyOf(c.event); policy {
	case event.PolicyLatest:
		return last.policy == policy
	case event.PolicyCollect:
		return last.policy == policy && last.sender == c.event.Source.UserID
	default:
		return false
	}
}

// endsWindow reports whether a run was made for messages that had been collected before.
func (k *backlogged) endsWindow(res store.Admitted) bool {
	return res.Created && k.newest.seq > res.DoneSeq
}
