package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// OutState is the state of an outbox row.
type OutState string

// Pending rows are sent in the order of their out_seq; the other states are settled.
const (
	OutPending OutState = "pending"
	OutSent    OutState = "sent"
	OutUnknown OutState = "unknown"
	OutDead    OutState = "dead"
)

// NewReply is a reply to be delivered. Target and Parts are JSON; DKey may be left empty for replies of a run, which
// get "<run_id>:<index from 1>".
type NewReply struct {
	DKey     string
	Platform string
	Target   json.RawMessage
	Parts    json.RawMessage
	// Read: the target reads its replies (API, terminal), nobody sends them; the row is born sent.
	Read bool
}

// Reply is an outbox row as readers see it.
type Reply struct {
	OutSeq   int64
	DKey     string
	Platform string
	State    OutState
	Parts    json.RawMessage
}

// Doorbell points at an outbox row.
type Doorbell struct {
	SKey   string
	OutSeq int64
	// Platform and Attempts are set where the sweeper rings.
	Platform string
	Attempts int
}

// DeliveryClaim asks for a row. Sent is the last row of the session that this process has sent but not yet marked.
type DeliveryClaim struct {
	SKey   string
	OutSeq int64
	Sent   int64
}

// Delivery is a row that this sender may send now.
type Delivery struct {
	SKey   string
	OutSeq int64
	// Tenant is that of the session.
	Tenant   string
	DKey     string
	RunID    uuid.UUID
	Platform string
	Target   json.RawMessage
	Parts    json.RawMessage
	// Attempts counts claims, Maybe the earlier ones that may have reached the platform.
	Attempts, Maybe int
	// Plan is the stored cut into parts, nil before the first send.
	Plan        json.RawMessage
	SentParts   int
	PlatformIDs json.RawMessage
	CreatedAt   time.Time
	// Traceparent is that of the run, else of nothing.
	Traceparent string
}

// PartSent is progress within a delivery.
type PartSent struct {
	SKey        string
	OutSeq      int64
	Sender      string
	SentParts   int
	PlatformIDs json.RawMessage
	// Plan is stored if the row has none.
	Plan json.RawMessage
}

// Mark settles a row: State is OutSent, OutUnknown or OutDead.
type Mark struct {
	SKey        string
	OutSeq      int64
	State       OutState
	PlatformIDs json.RawMessage
	// Reason goes into the dead letter that an OutDead row gets in the same statement: kind DeadKindDelivery, ref
	// "<skey>/<out_seq>". The letter's ID must be set where the state is OutDead.
	Reason   string
	LetterID uuid.UUID
}

// Marked is a session whose settled position moved.
type Marked struct {
	SKey            string
	OutSeq, OutSent int64
}

// Outbox is T8.
type Outbox interface {
	// ClaimDeliveries takes rows for sender, a fresh nonce per call, for 60 s: pending, not claimed, and next in their
	// session. Missing in the result: not next, settled, or somebody is sending it. It never waits for a lock.
	ClaimDeliveries(ctx context.Context, sender string, claims []DeliveryClaim) ([]Delivery, error)
	// RecordPart stores the plan and progress and extends the claim. ErrFenced: the claim is lost, stop.
	RecordPart(ctx context.Context, p PartSent) error
	// RetryDelivery gives the row back until after. maybe: the attempt may have reached the platform. ErrFenced: the claim was lost.
	RetryDelivery(ctx context.Context, skey string, outSeq int64, sender string, after time.Duration, maybe bool) error
	// NotePreview records a message that shows a run while it is being written; egress is the process that edits it.
	// Previews returns them, oldest first, ForgetPreviews removes them once the final text is sent. They are hints.
	NotePreview(ctx context.Context, skey string, runID uuid.UUID, platformID, egress string) error
	Previews(ctx context.Context, skey string, runID uuid.UUID) (platformIDs []string, err error)
	ForgetPreviews(ctx context.Context, skey string, runID uuid.UUID) error
	// MarkDeliveries settles rows whoever claimed them; rows that are settled are skipped. Returns the sessions whose
	// position moved: OutSeq > OutSent means that a later row waits.
	MarkDeliveries(ctx context.Context, marks []Mark) ([]Marked, error)
}
