package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Fence is the condition of every write of a run: the session row still has this generation, run and owner and is
// running.
type Fence struct {
	SKey  string
	Gen   int64
	RunID uuid.UUID
	// Owner is "<worker id>/<nonce>", a new nonce for every claim.
	Owner string
}

// ClaimRequest asks for a queued run. Pins are kept if the run already has some.
type ClaimRequest struct {
	Fence
	Pins json.RawMessage
}

// InboxRow is an inbox row that a run may take.
type InboxRow struct {
	Seq         int64
	UID         string
	Kind        InboxKind
	Body        json.RawMessage
	Group       string
	RunID       uuid.UUID
	Traceparent string
}

// Claimed is a run that is this worker's now.
type Claimed struct {
	Fence
	Tenant    string
	SessionID uuid.UUID
	AgentID   string
	DoneSeq   int64
	LastSeq   int64
	CtlSeq    int64
	StopRun   uuid.UUID
	// Attempt counts takeovers since the session last finished a run.
	Attempt int
	// FirstGen is the RunGen of the run's messages.
	FirstGen int64
	// Attempts counts claims: 1 means that nobody has stored anything for this run.
	Attempts int
	// Pins are those of the run's first claim that brought some.
	Pins json.RawMessage
	// OutSeq as of the claim.
	OutSeq int64
	// Inbox holds the rows above DoneSeq, ToolCalls the ledger of the run.
	Inbox     []InboxRow
	ToolCalls []ToolCall
}

// Checkpoint is T3: what a step adds to the history.
type Checkpoint struct {
	Fence
	RunGen   int64
	Messages []Message
	// ToolCalls are inserted, or their state and result updated.
	ToolCalls []ToolCall
	// Taken are the inbox rows that this run takes out of their place.
	Taken []int64
	// Replies are delivered while the run goes on. Each needs a DKey of its own: a repetition writes none twice.
	Replies []NewReply
}

// Signals is the durable view of stop and steer that a checkpoint returns.
type Signals struct {
	LastSeq, CtlSeq int64
	StopRun         uuid.UUID
}

// CheckpointResult answers the Checkpoint of the same index. Err is nil or ErrFenced.
type CheckpointResult struct {
	Signals
	// FirstOut is the out_seq of the first reply, 0 if none was written by this call.
	FirstOut int64
	Err      error
}

// HandoverResult answers the Checkpoint of the same index. Err is nil or ErrFenced.
type HandoverResult struct {
	// Gen is that of the queued run.
	Gen int64
	Err error
}

// Suspension is T7: a checkpoint, with the question among its Replies, that frees the slot until an answer or WakeAt comes.
type Suspension struct {
	Checkpoint
	// Seen is the newest inbox row that this worker has read and handled: a newer one that wakes queues the run at once.
	Seen   int64
	Kind   WaitKind
	WakeAt time.Time
}

// SuspendResult answers the Suspension of the same index. Err is nil or ErrFenced.
type SuspendResult struct {
	// Gen is the next generation. State is Waiting, or Queued if what the run waits for is there already.
	Gen      int64
	State    SessionState
	FirstOut int64
	Err      error
}

// QueuedStop is the cancelled form for a stopped run that nobody has claimed: no slot is needed to end it.
type QueuedStop struct {
	SKey  string
	Gen   int64
	RunID uuid.UUID
	// From and To are the inbox range that the run covers.
	From, To int64
	Replies  []NewReply
	// NextRunID becomes the run of the messages that wait behind To.
	NextRunID       uuid.UUID
	NextTraceparent string
}

// StopState is what the session says about a run in hand.
type StopState struct {
	// StopRun is the run that somebody wants to end, uuid.Nil if there is none.
	StopRun uuid.UUID
	// Held: the fence is still valid. If it is not, nothing else is set.
	Held bool
}

// Finish is T4: the end of a run, the reply and the next run in one statement.
type Finish struct {
	Fence
	RunGen int64
	// From and To are the inbox range that the run covers.
	From, To int64
	// State is RunDone, RunFailed or RunCancelled. The cancelled form takes effect although a stop is set and closes open
	// tool calls.
	State    RunState
	Error    string
	Usage    json.RawMessage
	Messages []Message
	Replies  []NewReply
	// NextRunID becomes the run of the messages that wait behind To.
	NextRunID       uuid.UUID
	NextTraceparent string
}

// FinishOutcome says how a Finish ended.
type FinishOutcome int

// Finished: committed, now or by an earlier try. Stopped: nothing was written, a stop came first, send the cancelled
// form. Fenced: nothing was written, the run is somebody else's.
const (
	Finished FinishOutcome = iota
	FinishStopped
	FinishFenced
)

// FinishResult answers the Finish of the same index.
type FinishResult struct {
	Outcome FinishOutcome
	// Known is false if an earlier try of unknown outcome had committed: the fields below are not set then, and the
	// sweeper rings what is left to ring.
	Known bool
	Gen   int64
	// RunID is the queued next run; uuid.Nil if the session is idle.
	RunID uuid.UUID
	// FirstOut is the out_seq of the first reply.
	FirstOut int64
	// Settled: all replies were born sent and nothing waits before them.
	Settled bool
}

// Runs moves runs. Errors of the batch as a whole are ErrUnavailable or ErrRejected, and may be repeated after the
// former.
type Runs interface {
	// Claim is T2.3: a compare-and-swap from queued to running. Requests that are missing in the result are not this
	// worker's.
	Claim(ctx context.Context, reqs []ClaimRequest) ([]Claimed, error)
	// Checkpoint is T3, durable on return. Repeating one changes nothing.
	Checkpoint(ctx context.Context, cps []Checkpoint) ([]CheckpointResult, error)
	// Finish is T4, durable on return.
	Finish(ctx context.Context, fins []Finish) ([]FinishResult, error)
	// Handover is T5: a checkpoint that gives the run back. It is queued under the next generation, for another worker;
	// attempts are not counted. Durable on return. Repeating one that was committed is ErrFenced.
	Handover(ctx context.Context, cps []Checkpoint) ([]HandoverResult, error)
	// Suspend is T7, durable on return. Repeating one that was committed is ErrFenced.
	Suspend(ctx context.Context, ss []Suspension) ([]SuspendResult, error)
	// StopQueued ends a run that is queued and stopped, durable on return. Outcome FinishFenced: a worker has claimed it
	// meanwhile and ends it itself, or an earlier try was committed.
	StopQueued(ctx context.Context, s QueuedStop) (FinishResult, error)
	// Stops tells of runs in hand whether they are stopped or lost; result[i] belongs to fences[i]. It is a read: what it
	// tells may be old by the time it is used, but a fence that was lost is never valid again.
	Stops(ctx context.Context, fences []Fence) ([]StopState, error)
	// Heartbeat notes that a worker lives, every 5 s.
	Heartbeat(ctx context.Context, w WorkerBeat) error
}

// WorkerBeat is what a worker says about itself.
type WorkerBeat struct {
	WorkerID    string
	Boot        uuid.UUID
	Slots, Used int
	Draining    bool
}
