// Package store is the port to the engine's truth: sessions, inbox, runs, history and outbox.
//
// Every write of a run is one conditional statement on its [Fence]; zero rows means that somebody else owns the run.
// The transactions keep their names T1–T8 from docs/architecture.md. Batch methods run over sets: the store may send
// them as one statement and falls back to single forms by itself, so that every item gets a definite answer.
//
// Backends: [pgstore] (the product) and [memstore] (development and tests); [storetest] holds the suite that both pass.
// All methods are safe for concurrent use.
package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// SessionState is the state of a session.
type SessionState string

// A session is idle, or has a run that is queued, running or waiting, or is paused by an operator.
const (
	Idle    SessionState = "idle"
	Queued  SessionState = "queued"
	Running SessionState = "running"
	Waiting SessionState = "waiting"
	Paused  SessionState = "paused"
)

// RunState is the state of a run.
type RunState string

// RunDone, RunCancelled, RunFailed and RunDead are final: such a run is never written again.
const (
	RunQueued    RunState = "queued"
	RunRunning   RunState = "running"
	RunWaiting   RunState = "waiting"
	RunDone      RunState = "done"
	RunCancelled RunState = "cancelled"
	RunFailed    RunState = "failed"
	RunDead      RunState = "dead"
)

// Final reports whether the run has ended.
func (s RunState) Final() bool {
	return s == RunDone || s == RunCancelled || s == RunFailed || s == RunDead
}

// Session is a session row. Nil ids are uuid.Nil, missing times are zero.
type Session struct {
	SKey       string
	Tenant     string
	SessionKey string
	SessionID  uuid.UUID
	Partition  int
	AgentID    string
	RunClass   string
	State      SessionState
	Gen        int64
	RunID      uuid.UUID
	Owner      string
	// LastSeq is the newest inbox row, DoneSeq the newest that a finished run covers, WantSeq the newest that needs a run,
	// WakeSeq the newest that may wake a waiting run, CtlSeq the newest stop or steer.
	LastSeq, DoneSeq, WantSeq, WakeSeq, CtlSeq int64
	StopRun                                    uuid.UUID
	// OutSeq is the newest outbox row, OutSent the newest that is settled.
	OutSeq, OutSent int64
	Attempt, Stall  int
	StallKey        string
	QueuedAt        time.Time
	TouchedAt       time.Time
	// WaitKind says what a waiting session waits for, WakeAt until when; both are of no meaning in other states.
	WaitKind WaitKind
	WakeAt   time.Time
}

// WaitKind says what a waiting session waits for.
type WaitKind string

// WaitCollect has no run: messages are collected until nothing more comes.
const (
	WaitApproval WaitKind = "approval"
	WaitQuestion WaitKind = "question"
	WaitTimer    WaitKind = "timer"
	WaitCollect  WaitKind = "collect"
)

// Run is a runs row.
type Run struct {
	ID        uuid.UUID
	SKey      string
	SessionID uuid.UUID
	AgentID   string
	State     RunState
	// FirstGen orders the runs of a session; it is the RunGen of the run's messages.
	FirstGen, LastGen int64
	Owner             string
	Attempts          int
	FromSeq, ToSeq    int64
	Usage             json.RawMessage
	Error             string
	CreatedAt         time.Time
	StartedAt         time.Time
	EndedAt           time.Time
}

// RoleSuperseded is the role of a message that a newer one has replaced before it was answered: it is in the history, and
// never in a prompt.
const RoleSuperseded = "superseded"

// Message is a row of history. Content is opaque to the store.
type Message struct {
	RunGen int64
	Branch int
	N      int
	RunID  uuid.UUID
	Role   string
	// Content is JSON without NUL characters.
	Content json.RawMessage
	// InboxSeq is the inbox row that the message was made from, 0 if none.
	InboxSeq int64
}

// ToolState is the state of a tool call.
type ToolState string

// A call is an intent until its result is stored; unknown means that it may have happened.
const (
	ToolIntent  ToolState = "intent"
	ToolDone    ToolState = "done"
	ToolFailed  ToolState = "failed"
	ToolUnknown ToolState = "unknown"
)

// ToolCall is a row of the tool ledger.
type ToolCall struct {
	CallID string
	Name   string
	Effect string
	State  ToolState
	Result json.RawMessage
}

// Reader answers questions that are not part of a run. Reads are not fenced: what they return may be old by the time
// it is used. A missing row is ErrNotFound.
type Reader interface {
	Session(ctx context.Context, skey string) (Session, error)
	Run(ctx context.Context, id uuid.UUID) (Run, error)
	// RunMessages returns the history rows of one run in order.
	RunMessages(ctx context.Context, id uuid.UUID) ([]Message, error)
	// RunReplies returns the outbox rows of one run in order.
	RunReplies(ctx context.Context, id uuid.UUID) ([]Reply, error)
	// Submission tells what became of an accepted message. ErrNotFound: not admitted (yet).
	Submission(ctx context.Context, skey, msgUID string) (Submission, error)
	// InboxAfter returns the rows of a session behind seq, in order.
	InboxAfter(ctx context.Context, skey string, seq int64) ([]InboxRow, error)
	// FindInbox returns the row of a platform message: the one with that uid, or the one that it was joined into.
	FindInbox(ctx context.Context, skey, uid string) (InboxRow, error)
	// KnownItems returns those of the uids that an admitted message was joined from, or that were admitted by themselves.
	KnownItems(ctx context.Context, skey string, uids []string) ([]string, error)
	// Conversations returns the newest conversations of a session, newest first.
	Conversations(ctx context.Context, skey string, limit int) ([]Conversation, error)
	// Conversation returns one by its id.
	Conversation(ctx context.Context, id uuid.UUID) (Conversation, error)
}

// Conversation is a durable history that a session points at, or has pointed at.
type Conversation struct {
	ID   uuid.UUID
	SKey string
	// Tenant is that of the session.
	Tenant string
	// Parent and ParentUpto are set for a fork, see Resumption.
	Parent     uuid.UUID
	ParentUpto int64
	// LastRunGen is the RunGen of its newest finished run, 0 if there is none; Runs counts the finished ones.
	LastRunGen int64
	Runs       int
	StartedAt  time.Time
	// EndedAt is zero while it is the current one.
	EndedAt time.Time
}

// Submission is an admitted message and what answers it.
type Submission struct {
	Seq  int64
	Kind InboxKind
	Body json.RawMessage
	// Run covers the message; its ID is uuid.Nil while the message waits for its turn. A run that is not final counts
	// only once its worker has stored that it takes the message, so that a waiting message never shows another's run.
	Run Run
	// Superseded: the run covers the message without answering it, because a newer one has replaced it.
	Superseded bool
	// Notice holds the parts of the notice that admission answered with, if any.
	Notice json.RawMessage
}

// Store is the whole port.
type Store interface {
	Inbox
	Runs
	Transcript
	Outbox
	Sweep
	Recovery
	Timers
	Reader
	Aliases
	Operator
	// Ready reports whether the store answers now.
	Ready(ctx context.Context) error
	Close()
}
