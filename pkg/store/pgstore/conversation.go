package pgstore

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// Conversations implements store.Reader.
func (s *Store) Conversations(ctx context.Context, skey string, limit int) ([]store.Conversation, error) {
	rows, err := bounded(ctx, s.queries.Conversations, dbgen.ConversationsParams{Skey: skey, MaxRows: int32(max(0, limit))})
	if err != nil {
		return nil, wrap("list conversations", err)
	}
	var out []store.Conversation
	for _, r := range rows {
		c, err := s.withRuns(ctx, store.Conversation{
			ID: r.SessionID, SKey: r.Skey, Tenant: r.Tenant, Parent: r.Parent.UUID, ParentUpto: r.ParentUpto.Int64,
			StartedAt: utc(r.StartedAt), EndedAt: utc(r.EndedAt),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// withRuns adds what is known of the runs of a conversation.
func (s *Store) withRuns(ctx context.Context, c store.Conversation) (store.Conversation, error) {
	r, err := bounded(ctx, s.queries.ConversationRuns, dbgen.ConversationRunsParams{Skey: c.SKey, SessionID: c.ID})
	c.LastRunGen, c.Runs = r.LastRunGen, int(r.Runs)
	return c, wrap("read runs of conversation "+c.ID.String(), err)
}

// Conversation implements store.Reader.
func (s *Store) Conversation(ctx context.Context, id uuid.UUID) (store.Conversation, error) {
	r, err := bounded(ctx, s.queries.Conversation, id)
	if err = wrap("read conversation "+id.String(), err); errors.Is(err, store.ErrNotFound) {
		return s.currentConversation(ctx, id)
	}
	if err != nil {
		return store.Conversation{}, err
	}
	return s.withRuns(ctx, store.Conversation{
		ID: r.SessionID, SKey: r.Skey, Tenant: r.Tenant, Parent: r.Parent.UUID, ParentUpto: r.ParentUpto.Int64,
		StartedAt: utc(r.StartedAt), EndedAt: utc(r.EndedAt),
	})
}

// currentConversation finds one that has no row yet.
func (s *Store) currentConversation(ctx context.Context, id uuid.UUID) (store.Conversation, error) {
	r, err := bounded(ctx, s.queries.CurrentConversation, id)
	if err != nil {
		return store.Conversation{}, wrap("read conversation "+id.String(), err)
	}
	return s.withRuns(ctx, store.Conversation{ID: r.SessionID, SKey: r.Skey, Tenant: r.Tenant, StartedAt: utc(r.CreatedAt)})
}

// History implements store.Transcript.
func (s *Store) History(ctx context.Context, skey string, sessionID uuid.UUID, limit int) ([]store.Message, error) {
	rows, err := bounded(ctx, s.queries.History, dbgen.HistoryParams{Skey: skey, SessionID: sessionID, MaxRows: int32(max(0, limit))})
	if err != nil {
		return nil, wrap("read history", err)
	}
	slices.Reverse(rows) // the newest come first
	own := column(rows, message)
	if len(own) >= limit {
		return own, nil
	}
	return s.stitched(ctx, skey, sessionID, own, limit)
}

// stitched puts what a conversation was forked from before its own messages. A parent is older than its fork, so that this
// ends.
func (s *Store) stitched(
	ctx context.Context, skey string, id uuid.UUID, own []store.Message, limit int,
) ([]store.Message, error) {
	for len(own) < limit {
		r, err := bounded(ctx, s.queries.Conversation, id)
		if err = wrap("read conversation "+id.String(), err); errors.Is(err, store.ErrNotFound) {
			return own, nil // it has no row yet, so that it is no fork
		}
		if err != nil {
			return nil, err
		}
		if !r.Parent.Valid || r.Skey != skey { // of another session nothing is told
			return own, nil
		}
		parent, err := s.Conversation(ctx, r.Parent.UUID)
		if errors.Is(err, store.ErrNotFound) {
			return own, nil
		}
		if err != nil {
			return nil, err
		}
		before, err := s.historyBetween(ctx, parent.SKey, parent.ID, 0, r.ParentUpto.Int64, limit-len(own))
		if err != nil {
			return nil, err
		}
		own, id, skey = append(before, own...), parent.ID, parent.SKey
	}
	return own, nil
}

func (s *Store) historyBetween(
	ctx context.Context, skey string, id uuid.UUID, after, upto int64, limit int,
) ([]store.Message, error) {
	rows, err := bounded(ctx, s.queries.HistoryBetween, dbgen.HistoryBetweenParams{
		Skey: skey, SessionID: id, After: after, Upto: upto, MaxRows: int32(max(0, limit)),
	})
	if err != nil {
		return nil, wrap("read history", err)
	}
	slices.Reverse(rows)
	return column(rows, func(r *dbgen.HistoryBetweenRow) store.Message { return message((*dbgen.HistoryRow)(r)) }), nil
}

// endOfTime is behind every generation.
const endOfTime = 1<<63 - 1

// HistoryAfter implements store.Transcript.
func (s *Store) HistoryAfter(
	ctx context.Context, skey string, sessionID uuid.UUID, runGen int64, limit int,
) ([]store.Message, error) {
	if runGen <= 0 {
		return s.History(ctx, skey, sessionID, limit)
	}
	return s.historyBetween(ctx, skey, sessionID, runGen, endOfTime, limit)
}
