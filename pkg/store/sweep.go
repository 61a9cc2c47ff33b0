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
	// Backlog counts running and queued sessions of the partitions, for the wanted number of workers.
	Backlog(ctx context.Context, partitions []int) (running, queued int, err error)
}
