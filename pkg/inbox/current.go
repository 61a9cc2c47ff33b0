package inbox

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Reader reads what a run may take.
type Reader interface {
	InboxAfter(ctx context.Context, skey string, seq int64) ([]store.InboxRow, error)
	RunMessages(ctx context.Context, id uuid.UUID) ([]store.Message, error)
}

// Current reads what the current run of a session takes, and the rows that are not covered yet. Without a run it is what
// a run would take.
func Current(ctx context.Context, r Reader, s store.Session) (Taking, []store.InboxRow, error) {
	rows, err := r.InboxAfter(ctx, s.SKey, s.DoneSeq)
	if err != nil {
		return Taking{}, nil, fmt.Errorf("read inbox: %w", err)
	}
	var stored []store.Message
	if s.RunID != uuid.Nil {
		if stored, err = r.RunMessages(ctx, s.RunID); err != nil {
			return Taking{}, nil, fmt.Errorf("read messages of the run: %w", err)
		}
	}
	take := Take
	if s.RunID != uuid.Nil && s.StopRun == s.RunID {
		take = TakeStopped
	}
	return take(rows, s.DoneSeq, s.RunID, stored), rows, nil
}
