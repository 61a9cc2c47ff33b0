package memstore

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// sessionRow is a session with everything that belongs to it.
type sessionRow struct {
	store.Session
	// stopAt is when somebody first wanted to end the run StopRun.
	stopAt time.Time
	// inbox[i] has seq i+1, outbox[i] out_seq i+1; rows that were purged are nil.
	inbox []*inboxRow
	uids  map[string]int64
	// items holds the seq of the row that an item was joined into.
	items  map[string]int64
	outbox []*outRow
	dkeys  map[string]struct{}
	// messages holds the keys of all messages.
	messages map[messageKey]struct{}
	// final holds the ended runs in the order of their ends, which is that of their ranges.
	final []*runRow
	// conversations are in the order of their beginnings.
	conversations []*conversation
	// ticket is the place in the partition's queue, 0 unless queued; a delayed session is older there than its age says.
	ticket  int64
	delayed bool
}

type inboxRow struct {
	store.InboxRow
	at    time.Time
	items []string
	// notice is the outbox row that admission answered with, nil if there is none.
	notice *outRow
}

// messageKey is the primary key of history within a session.
type messageKey struct {
	runGen    int64
	branch, n int
}

type runRow struct {
	store.Run
	pins        json.RawMessage
	traceparent string
	// messages are in the order of their key, replies in that of out_seq.
	messages []*store.Message
	replies  []*outRow
	calls    []store.ToolCall
}

// holds reports whether the fence f is valid; there is no row behind a nil receiver.
func (r *sessionRow) holds(f store.Fence) bool {
	return r != nil && r.State == store.Running && r.Gen == f.Gen && r.RunID == f.RunID && r.Owner == f.Owner
}

// current reports whether the session has that run under that generation, in whatever state.
func (r *sessionRow) current(gen int64, runID uuid.UUID) bool {
	return r != nil && runID != uuid.Nil && r.Gen == gen && r.RunID == runID
}

// out returns the outbox row, nil if there is none.
func (r *sessionRow) out(outSeq int64) *outRow {
	if r == nil || outSeq < 1 || outSeq > int64(len(r.outbox)) {
		return nil
	}
	return r.outbox[outSeq-1]
}

// find returns the row with that uid, or the one that a message with that uid was joined into; nil if there is none.
func (r *sessionRow) find(uid string) *inboxRow {
	if r == nil {
		return nil
	}
	seq, ok := r.uids[uid]
	if !ok {
		seq, ok = r.items[uid]
	}
	if !ok {
		return nil
	}
	return r.inbox[seq-1]
}

// behind returns the inbox rows above seq.
func (r *sessionRow) behind(seq int64) []store.InboxRow {
	seq = min(max(0, seq), int64(len(r.inbox)))
	rows := make([]store.InboxRow, 0, int64(len(r.inbox))-seq)
	for _, in := range r.inbox[seq:] {
		if in != nil {
			rows = append(rows, in.InboxRow)
		}
	}
	return rows
}

// newRun makes the session's current run, which is queued.
func (s *Store) newRun(r *sessionRow, traceparent string, now time.Time) {
	s.runs[r.RunID] = &runRow{
		Run: store.Run{
			ID: r.RunID, SKey: r.SKey, SessionID: r.SessionID, AgentID: r.AgentID, State: store.RunQueued,
			FirstGen: r.Gen, LastGen: r.Gen, CreatedAt: now,
		},
		traceparent: traceparent,
	}
}

// record adds messages of the run to the history; those that are there already are left alone.
func (r *sessionRow) record(run *runRow, runGen int64, msgs []store.Message) {
	c := r.conversation(run.SessionID)
	for _, m := range msgs {
		key := messageKey{runGen: runGen, branch: m.Branch, n: m.N}
		if _, stored := r.messages[key]; stored {
			continue
		}
		r.messages[key] = struct{}{}
		m.RunGen, m.RunID, m.Content = runGen, run.ID, cloneJSON(m.Content)
		run.messages = insertMessage(run.messages, &m)
		if m.Branch == 0 {
			c.history = insertMessage(c.history, &m)
		}
	}
}

// insertMessage keeps the order of the key; a new message is nearly always the last one.
func insertMessage(in []*store.Message, m *store.Message) []*store.Message {
	if len(in) == 0 || compareMessages(in[len(in)-1], m) < 0 {
		return append(in, m)
	}
	i, _ := slices.BinarySearchFunc(in, m, compareMessages)
	return slices.Insert(in, i, m)
}

func compareMessages(a, b *store.Message) int {
	return cmp.Or(cmp.Compare(a.RunGen, b.RunGen), cmp.Compare(a.Branch, b.Branch), cmp.Compare(a.N, b.N))
}

// putCalls inserts tool calls, or updates the state and result of those that are there.
func (run *runRow) putCalls(calls []store.ToolCall) {
	for _, c := range calls {
		c.Result = cloneJSON(c.Result)
		i := slices.IndexFunc(run.calls, func(old store.ToolCall) bool { return old.CallID == c.CallID })
		if i < 0 {
			run.calls = append(run.calls, c)
			continue
		}
		run.calls[i].State, run.calls[i].Result = c.State, c.Result
	}
}

// closeCalls settles calls that are open when the run is cancelled: unsafe ones may have happened.
func (run *runRow) closeCalls() {
	for i := range run.calls {
		c := &run.calls[i]
		switch {
		case c.State != store.ToolIntent:
		case c.Effect == "unsafe":
			c.State = store.ToolUnknown
		default:
			c.State = store.ToolFailed
		}
	}
}

// wrote reports whether the run holds a message made from the inbox row.
func (run *runRow) wrote(seq int64) bool {
	return slices.ContainsFunc(run.messages, func(m *store.Message) bool { return m.InboxSeq == seq })
}

// superseded reports whether the run holds the inbox row as one that a newer one has replaced.
func (run *runRow) superseded(seq int64) bool {
	return slices.ContainsFunc(run.messages, func(m *store.Message) bool {
		return m.InboxSeq == seq && m.Role == store.RoleSuperseded
	})
}

// coveredBy returns the final run whose range holds seq, nil if there is none.
func (r *sessionRow) coveredBy(seq int64) *runRow {
	if seq > r.DoneSeq {
		return nil
	}
	for _, run := range slices.Backward(r.final) {
		if run.FromSeq <= seq && seq <= run.ToSeq {
			return run
		}
	}
	return nil
}
