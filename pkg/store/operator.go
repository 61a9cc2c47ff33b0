package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Kinds of dead letters: a message that could not be admitted, a run that was given up, a reply that could not be
// delivered.
const (
	DeadKindIngress  = "ingress"
	DeadKindRun      = "run"
	DeadKindDelivery = "out"
)

// DeadRun is the payload of a dead letter of a run: the messages that it had taken.
type DeadRun struct {
	SKey  string            `json:"skey"`
	RunID uuid.UUID         `json:"run_id"`
	Rows  []json.RawMessage `json:"rows"`
}

// DeadDelivery is the payload of a dead letter of a delivery.
type DeadDelivery struct {
	SKey     string          `json:"skey"`
	OutSeq   int64           `json:"out_seq"`
	DKey     string          `json:"dkey"`
	Platform string          `json:"platform"`
	Target   json.RawMessage `json:"target"`
	Parts    json.RawMessage `json:"parts"`
}

// StoredLetter is a dead letter as it lies in the store.
type StoredLetter struct {
	DeadLetter
	CreatedAt time.Time
	// Replays counts how often it was replayed, ReplayedAt is the last time.
	Replays    int
	ReplayedAt time.Time
}

// LetterQuery selects dead letters, newest first. Zero fields select all; Before is the ID of the last one of the page
// before (UUIDv7: ids rise with time).
type LetterQuery struct {
	Kind   string
	Open   bool // never replayed
	Before uuid.UUID
	Limit  int
}

// SessionQuery selects sessions by skey. Zero fields select all; After is the skey of the last one of the page before.
type SessionQuery struct {
	Tenant string
	State  SessionState
	After  string
	Limit  int
}

// WorkerState is what a worker last said about itself.
type WorkerState struct {
	WorkerBeat
	// Silent is how long ago that was.
	Silent time.Duration
}

// Unpaused says what a session does since it goes on: RunID is its queued run, uuid.Nil if it is idle.
type Unpaused struct {
	State SessionState
	Gen   int64
	RunID uuid.UUID
	// RunClass of the session, for the doorbell.
	RunClass string
}

// Operator is what people on call do by hand. All methods are durable on return.
type Operator interface {
	// Pause fences the current run off and keeps the session from beginning another; messages are kept. It returns the
	// session after it. Pausing twice changes nothing. ErrNotFound.
	Pause(ctx context.Context, skey string) (Session, error)
	// Unpause lets it go on: with the run that was interrupted, with run next for messages that wait, or idle. A session
	// that is not paused stays as it is, which is returned. ErrNotFound.
	Unpause(ctx context.Context, skey string, next uuid.UUID) (Unpaused, error)
	// FindSessions returns sessions in the order of their skey.
	FindSessions(ctx context.Context, q SessionQuery) ([]Session, error)
	// Workers returns those that were heard of in the last day, by id.
	Workers(ctx context.Context) ([]WorkerState, error)
	// DeadLetters returns letters without their payload.
	DeadLetters(ctx context.Context, q LetterQuery) ([]StoredLetter, error)
	// DeadLetter returns one with its payload; ErrNotFound.
	DeadLetter(ctx context.Context, id uuid.UUID) (StoredLetter, error)
	// CountReplay notes a replay and returns the letter with its number in Replays, from 1.
	CountReplay(ctx context.Context, id uuid.UUID) (StoredLetter, error)
	// Redeliver appends a reply to the outbox of a session, under its DKey: twice the same writes one. It returns the row.
	Redeliver(ctx context.Context, skey string, r NewReply) (Doorbell, error)
}
