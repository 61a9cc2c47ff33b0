package sessionapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// view is a session as clients see it.
type view struct {
	SessionID string `json:"session_id"`
	State     string `json:"state"`
	// Waiting counts the messages behind the one that is being answered.
	Waiting int64   `json:"waiting"`
	RunID   *string `json:"run_id"`
	// ConversationID is the durable history that the session points at now.
	ConversationID string `json:"conversation_id"`
}

// Get shows a session of the client's tenant.
func (h *Handler) Get(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := accept.CheckID("id", id); err != nil {
		return httpapi.FromAccept(err, nil)
	}
	s, err := h.runs.Store.Session(r.Context(), h.profile.SKey(auth.From(r.Context()), id))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return httpapi.NotFound("session")
	case errors.Is(err, store.ErrUnavailable):
		return httpapi.Unavailable("store_unavailable", "the session cannot be read now")
	case err != nil:
		return fmt.Errorf("read session: %w", err)
	}
	v := view{SessionID: id, State: string(s.State), Waiting: waiting(s), ConversationID: s.SessionID.String()}
	if s.RunID != uuid.Nil {
		v.RunID = runapi.OrNull(s.RunID.String())
	}
	httpapi.WriteJSON(w, http.StatusOK, v)
	return nil
}

// waiting counts rows, so that commands between messages count too until the next run covers them.
func waiting(s store.Session) int64 {
	n := s.WantSeq - s.DoneSeq
	if s.RunID != uuid.Nil {
		n-- // its own message
	}
	return max(n, 0)
}
