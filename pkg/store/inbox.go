package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// InboxKind is the kind of an inbox row.
type InboxKind string

// KindUser wants a run; the others only if an admission says so. Refused and moved rows are only covered.
const (
	KindUser     InboxKind = "user"
	KindSteer    InboxKind = "steer"
	KindStop     InboxKind = "stop"
	KindCommand  InboxKind = "command"
	KindApproval InboxKind = "approval"
	KindTimer    InboxKind = "timer"
	KindSystem   InboxKind = "system"
	KindRefused  InboxKind = "refused"
	KindMoved    InboxKind = "moved"
)

// Offset is how far a partition's log has been admitted.
type Offset struct {
	Partition int
	Stream    string
	// StreamCreated tells a re-created stream from the one that was read.
	StreamCreated time.Time
	LastSeq       int64
	// LastUID is the Msg-Id of the entry at LastSeq, LastAt the time of its admission.
	LastUID string
	LastAt  time.Time
}

// OffsetMove is a compare-and-swap of a partition's offset.
type OffsetMove struct {
	Partition int
	From, To  int64
	UID       string
}

// AdmitMessage is one message to be admitted.
type AdmitMessage struct {
	SKey, Tenant, SessionKey string
	AgentID, RunClass        string
	UID                      string
	Kind                     InboxKind
	// Body is JSON.
	Body        json.RawMessage
	Group       string
	StreamSeq   int64
	Traceparent string
	// Fresh ids, used if the session or a run is created.
	SessionID, RunID uuid.UUID
	// WantsRun, Wakes, Steer and Stop say what the row does to the session, see ENGINE T1 in docs/architecture.md. A stop
	// wakes, so that a waiting run can end.
	WantsRun, Wakes, Steer, Stop bool
	// Notice, if not nil, answers the message by an outbox row in the same statement.
	Notice *NewReply
	// NoticeIfIdle writes the notice only if the session has no current run in this very statement: the answer to a stop
	// that finds nothing to stop. With a current run the stop is confirmed by whoever ends the run.
	NoticeIfIdle bool
	// Items are the uids of the platform messages that this one was joined from; they are known from then on, see
	// Reader.KnownItems.
	Items []string
	// Reset is the fence of /new: the current run and all that waits up to this row are cancelled, its owner can write
	// nothing more, and the conversation SessionID begins. A paused session stays paused. Rows that wait without a run
	// are covered by a cancelled run RunID. WantsRun, Wakes, Steer, Stop and NoticeIfIdle do not count beside it.
	Reset bool
	// Resume, beside Reset: SessionID is not a fresh conversation but this one, which the session takes up again, or which
	// is forked from one of another session.
	Resume *Resumption
	// RejectIfBusy stores the message as KindRefused, without a run, unless the session is idle in this very statement. Its
	// Notice is written only then.
	RejectIfBusy bool
	// Interrupt stops the current run if it is running or waits for an answer. The stop is not confirmed: the message goes on
	// in its place.
	Interrupt bool
	// Collect, if not nil, waits in an idle session until nothing has come for a while, instead of beginning a run; while the
	// session collects, it moves the end of the wait on. Beside it WantsRun has to be set.
	Collect *Collect
	// EndsCollect ends such a wait at once: what was collected becomes a run.
	EndsCollect bool
	// Edit, if not nil, replaces the body of an earlier row that no run has been finished with; the message itself gets
	// no row and no number.
	Edit *InboxEdit
}

// Resumption says where a conversation that is taken up comes from. Without a Parent it must be one of the same session
// (ErrRejected otherwise).
type Resumption struct {
	// Parent is the conversation that is forked, ParentUpto the RunGen of its last run that belongs to the fork.
	Parent     uuid.UUID
	ParentUpto int64
}

// Collect is a quiet window: it ends Quiet after the last message, and Max after the first one at the latest.
type Collect struct {
	Quiet, Max time.Duration
}

// InboxEdit is the new body of the row Seq.
type InboxEdit struct {
	Seq  int64
	Body json.RawMessage
}

// Plain reports whether the message can go into the set-based form: it wants a run and does nothing else.
func (m *AdmitMessage) Plain() bool {
	return m.Kind == KindUser && m.WantsRun && !m.Wakes && !m.Steer && !m.Stop && m.Notice == nil && m.Group == "" &&
		len(m.Items) == 0 && !m.Reset && m.Edit == nil && !m.RejectIfBusy && !m.Interrupt && m.Collect == nil && !m.EndsCollect
}

// Admission is one T1: offsets and rows in one transaction.
type Admission struct {
	Offsets []OffsetMove
	// Messages in stream order per session.
	Messages []AdmitMessage
	Dead     []DeadLetter
}

// DeadLetter is a message or a run that was given up; it can be replayed.
type DeadLetter struct {
	ID uuid.UUID
	// Kind is ingress, run or out.
	Kind    string
	Ref     string
	Reason  string
	Payload json.RawMessage
}

// Admitted tells what became of the AdmitMessage of the same index.
type Admitted struct {
	// Duplicate: the message was admitted before; nothing else is set.
	Duplicate bool
	Seq       int64
	// Kind is that of the row: KindRefused where RejectIfBusy met a busy session.
	Kind InboxKind
	// DoneSeq is the newest row that a finished run covers: at most Seq-DoneSeq messages wait.
	DoneSeq int64
	Gen     int64
	State   SessionState
	// RunID is the session's current run, Created says that this message made it.
	RunID   uuid.UUID
	Created bool
	Owner   string
	StopRun uuid.UUID
	// OutSeq is the outbox row of the notice, 0 if there is none.
	OutSeq int64
	// Fenced is the run that a Reset cancelled, uuid.Nil if there was none.
	Fenced uuid.UUID
	// Edited: the body of the Edit is in its row; false if the row was finished with. Of an Edit nothing else is set.
	Edited bool
}

// Inbox admits messages.
type Inbox interface {
	// Offsets returns the offsets of the partitions that have one.
	Offsets(ctx context.Context, partitions []int) ([]Offset, error)
	// SetOffset creates the partition's offset (old nil) or replaces old, compared by stream, created and last seq:
	// an OffsetMovedError if it is not there or is another.
	SetOffset(ctx context.Context, old *Offset, next Offset) error
	// Admit is T1. On success result[i] belongs to Messages[i]. Errors: *OffsetMovedError and nothing is committed;
	// ErrRejected if one of the rows is poison, and nothing is committed (halve the batch); ErrUnavailable: unknown
	// outcome, but a repetition cannot admit twice.
	Admit(ctx context.Context, a Admission) ([]Admitted, error)
}
