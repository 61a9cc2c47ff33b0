package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// ActiveRun is a running session as a sweeper reads it.
type ActiveRun struct {
	SKey, Tenant, RunClass string
	Gen                    int64
	RunID                  uuid.UUID
	Owner                  string
	// Silent is how long ago the worker of the owner has said that it lives; negative if it never has.
	Silent time.Duration
	// Untouched is how long ago the run was claimed or wrote.
	Untouched time.Duration
	// Attempt, Stall and StallKey as of now, see Takeover.
	Attempt, Stall int
	StallKey       string
}

// Takeover takes a run from an owner, as the sweeper read both.
type Takeover struct {
	SKey  string
	Gen   int64
	Owner string
	// StallKey identifies the tool call that was open, "" if the run only waited for its model: then whoever died with it
	// is no proof against the run.
	StallKey string
	// Delay keeps the run from being dispatched for a time.
	Delay time.Duration
}

// TakenOver is the run that is queued again.
type TakenOver struct {
	Gen   int64
	RunID uuid.UUID
	// Attempt counts takeovers since the session last finished a run, Stall those in a row with one StallKey.
	Attempt, Stall int
}

// GiveUp ends a run that has cost too many attempts: the dead form of T4.
type GiveUp struct {
	SKey string
	Gen  int64
	// Owner as it was read, "" if there is none.
	Owner string
	RunID uuid.UUID
	// RunGen, From, To, Messages, Replies, NextRunID and NextTraceparent are as in Finish.
	RunGen          int64
	From, To        int64
	Messages        []Message
	Replies         []NewReply
	NextRunID       uuid.UUID
	NextTraceparent string
	// Calls are the results that the open calls get.
	Calls  []ToolCall
	Error  string
	Letter DeadLetter
}

// StaleStop is a run that was stopped and that nobody has ended.
type StaleStop struct {
	SKey  string
	Gen   int64
	RunID uuid.UUID
	State SessionState
	Owner string
}

// Reclaim renews the ownership of a run whose lease Redis has forgotten.
type Reclaim struct {
	Fence
	// Fresh is the new owner: the same worker with a new nonce.
	Fresh string
}

// Reclaimed answers the Reclaim of the same index. Err is nil or ErrFenced.
type Reclaimed struct {
	// Gen is the next generation, which the run has from now on.
	Gen int64
	Err error
}

// Recovery brings back what a process left behind when it died.
type Recovery interface {
	// RunningRuns is rule (b): running sessions of the partitions, in the order of their skey; after and next are the
	// cursor of pages as in QueuedRuns.
	RunningRuns(ctx context.Context, partitions []int, after string, limit int) (runs []ActiveRun, next string, err error)
	// Takeover is T6, durable on return: the run is queued under the next generation, whatever its owner does. ErrFenced:
	// the session has moved on.
	Takeover(ctx context.Context, t Takeover) (TakenOver, error)
	// GiveUp ends the run as dead, with an apology and a dead letter, durable on return; the session goes on with the next
	// message. It ends queued and waiting runs as well, which have no owner. Outcome FinishFenced: the session has moved on,
	// or an earlier try was committed.
	GiveUp(ctx context.Context, g GiveUp) (FinishResult, error)
	// Reclaim gives runs in hand the next generation and a new owner, in one statement. Never call it for a run while one of
	// its writes is on its way: the run would fence itself.
	Reclaim(ctx context.Context, rs []Reclaim) ([]Reclaimed, error)
	// RunToolCalls returns the ledger of a run in the order of its calls.
	RunToolCalls(ctx context.Context, id uuid.UUID) ([]ToolCall, error)
	// StaleStops is rule (f): runs that were stopped longer than age ago, queued or running, never of a paused session.
	StaleStops(ctx context.Context, partitions []int, age time.Duration, limit int) ([]StaleStop, error)
	// EndStopped ends such a run in its cancelled form, whoever owns it, durable on return. Outcome FinishFenced: somebody
	// else has.
	EndStopped(ctx context.Context, s QueuedStop) (FinishResult, error)
	// SettleGaps is rule (e): it moves the settled position of sessions over rows that are settled, and returns the
	// rows that come next.
	SettleGaps(ctx context.Context, partitions []int, limit int) ([]Doorbell, error)
	// EndFrozen is rule (h): it ends database sessions of this role that hold a transaction open for longer than age while
	// they wait for their client, and returns how many.
	EndFrozen(ctx context.Context, age time.Duration) (int, error)
}
