package store

import (
	"context"

	"github.com/google/uuid"
)

// Transcript reads the history of a conversation.
type Transcript interface {
	// History returns the newest limit messages of branch 0, oldest first.
	History(ctx context.Context, skey string, sessionID uuid.UUID, limit int) ([]Message, error)
}
