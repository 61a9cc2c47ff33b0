package store

import (
	"context"
	"encoding/json"
	"time"
)

// Timer sends a message to a session at a time, once or again and again. Spec and Body are opaque to the store.
type Timer struct {
	ID     string
	SKey   string
	Tenant string
	Spec   string
	Body   json.RawMessage
	NextAt time.Time
}

// Timers are looked after by the router that owns the partition of their session.
type Timers interface {
	// PutTimer creates a timer or replaces the one of that id and session. ErrRejected: the id belongs to another session.
	PutTimer(ctx context.Context, t Timer) error
	// Timers returns those of a session, by NextAt.
	Timers(ctx context.Context, skey string) ([]Timer, error)
	// DeleteTimer removes one; ErrNotFound.
	DeleteTimer(ctx context.Context, skey, id string) error
	// DueTimers is rule (g): timers of the partitions whose time has come, by NextAt.
	DueTimers(ctx context.Context, partitions []int, limit int) ([]Timer, error)
	// MoveTimer sets NextAt from one time to the next; the zero time deletes the timer. moved is false if somebody else has
	// moved it.
	MoveTimer(ctx context.Context, id string, from, to time.Time) (moved bool, err error)
}
