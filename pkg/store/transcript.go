package store

import (
	"context"

	"github.com/google/uuid"
)

// Transcript reads the history of a conversation.
type Transcript interface {
	// History returns the newest limit messages of branch 0, oldest first. Those of a fork begin with what it was forked
	// from.
	History(ctx context.Context, skey string, sessionID uuid.UUID, limit int) ([]Message, error)
	// HistoryAfter returns those of them that belong to runs behind runGen, oldest first: what a reader that knows the
	// history up to there is missing. More than limit is the newest limit. Of a fork runGen is a run of its own, 0 if the
	// reader knows none: who knows one knows all that it was forked from.
	HistoryAfter(ctx context.Context, skey string, sessionID uuid.UUID, runGen int64, limit int) ([]Message, error)
}
