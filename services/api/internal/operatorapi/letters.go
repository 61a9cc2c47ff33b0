package operatorapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// letter is a dead letter as operators see it.
type letter struct {
	ID         string          `json:"id"`
	Kind       string          `json:"kind"`
	Ref        string          `json:"ref"`
	Reason     string          `json:"reason"`
	CreatedAt  time.Time       `json:"created_at"`
	Replays    int             `json:"replays"`
	ReplayedAt *time.Time      `json:"replayed_at"`
	Payload    json.RawMessage `json:"payload,omitempty"`
}

func letterView(l store.StoredLetter) letter {
	return letter{
		ID: l.ID.String(), Kind: l.Kind, Ref: l.Ref, Reason: l.Reason, CreatedAt: l.CreatedAt.UTC(), Replays: l.Replays,
		ReplayedAt: at(l.ReplayedAt), Payload: l.Payload,
	}
}

type letterList struct {
	Letters []letter `json:"dead_letters"`
	// Next is the value of before for the next page, null at the end.
	Next *string `json:"next"`
}

// Letters lists dead letters, newest first, without what they hold: ?kind, ?open=true (never replayed), ?before, ?limit.
func (h *Handler) Letters(w http.ResponseWriter, r *http.Request) error {
	q, err := letterQuery(r)
	if err != nil {
		return err
	}
	found, err := h.Store.DeadLetters(r.Context(), q)
	if err != nil {
		return clientError("dead letters", err)
	}
	list := letterList{Letters: make([]letter, len(found))}
	for i, l := range found {
		list.Letters[i] = letterView(l)
	}
	if len(found) == q.Limit {
		list.Next = &list.Letters[q.Limit-1].ID
	}
	httpapi.WriteJSON(w, http.StatusOK, list)
	return nil
}

func letterQuery(r *http.Request) (store.LetterQuery, error) {
	limit, err := limitOf(r)
	if err != nil {
		return store.LetterQuery{}, err
	}
	query := r.URL.Query()
	q := store.LetterQuery{Kind: query.Get("kind"), Limit: limit}
	if !slices.Contains([]string{"", store.DeadKindIngress, store.DeadKindRun, store.DeadKindDelivery}, q.Kind) {
		return q, httpapi.Invalid("kind", "kind: must be ingress, run or out")
	}
	switch query.Get("open") {
	case "", "false":
	case "true":
		q.Open = true
	default:
		return q, httpapi.Invalid("open", "open: must be true or false")
	}
	if before := query.Get("before"); before != "" {
		if q.Before, err = uuid.Parse(before); err != nil {
			return q, httpapi.Invalid("before", "before: is not a UUID")
		}
	}
	return q, nil
}

// Letter shows one dead letter with what it holds. That is the text of users: the request is logged.
func (h *Handler) Letter(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	l, err := h.Store.DeadLetter(r.Context(), id)
	if err != nil {
		return clientError("dead letter", err)
	}
	h.did(r, "read dead letter", "id", id)
	httpapi.WriteJSON(w, http.StatusOK, letterView(l))
	return nil
}
