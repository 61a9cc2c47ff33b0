package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// QueuedRun is a run that waits for a worker.
type QueuedRun struct {
	SKey     string
	Tenant   string
	Gen      int64
	RunID    uuid.UUID
	RunClass string
	// Age since it was queued.
	Age time.Duration
}

// Sweep finds what was left behind.
type Sweep interface {
	// QueuedRuns is rule (a): queued sessions of the partitions that are older than age, oldest first within a
	// partition; after is the skey-and-time cursor of the last page ("" for the first), next is "" at the end.
	QueuedRuns(ctx context.Context, partitions []int, age time.Duration, after string, limit int) (runs []QueuedRun, next string, err error)
	// DueDeliveries is rule (d): pending rows that are due and not claimed; their next_at moves 90 s on.
	DueDeliveries(ctx context.Context, limit int) ([]Doorbell, error)
	// WakeDue is rule (c): waiting sessions of the partitions whose time has come are queued under the next generation and
	// returned; at most len(fresh). One that was collecting gets a run of its own, with an id of fresh.
	WakeDue(ctx context.Context, partitions []int, fresh []uuid.UUID) ([]QueuedRun, error)
	// RunningByTenant counts the running sessions of each tenant, of all partitions.
	RunningByTenant(ctx context.Context) (map[string]int, error)
	// Purge removes at most limit rows of each kind that have not been needed for longer than age: inbox rows that are
	// covered, settled deliveries, ended runs with their tool ledger, replayed dead letters. Histories stay. It returns how
	// many rows it removed.
	Purge(ctx context.Context, age time.Duration, limit int) (removed int, err error)
	// Backlog counts running and queued sessions of the partitions, for the wanted number of workers.
	Backlog(ctx context.Context, partitions []int) (running, queued int, err error)
}
