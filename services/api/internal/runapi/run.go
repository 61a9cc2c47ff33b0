package runapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// view is a run as clients see it.
type view struct {
	// RunID is null where the message waits for its turn, or was answered without a run.
	RunID *string `json:"run_id"`
	// Session is the skey, as in the ids of the session's messages.
	Session string `json:"session"`
	State   string `json:"state"`
	// Text is the committed answer, "" before the end.
	Text      string          `json:"text"`
	Usage     json.RawMessage `json:"usage"`
	StartedAt *time.Time      `json:"started_at"`
	EndedAt   *time.Time      `json:"ended_at"`
	Attempts  int             `json:"attempts"`
	Error     string          `json:"error,omitempty"`
	// Code says why the message was not answered.
	Code string `json:"code,omitempty"`
}

// Run shows a run.
func (h *Handler) Run(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	target, err := h.find(ctx, auth.From(ctx), r.PathValue("id"))
	if err != nil {
		return clientError(err)
	}
	a, err := read(ctx, h.Store, target)
	if err != nil {
		return clientError(err)
	}
	v := view{
		RunID: OrNull(a.runID()), Session: target.SKey, State: a.state(), Usage: usage(a.run.Usage),
		StartedAt: timeOrNull(a.run.StartedAt), EndedAt: timeOrNull(a.run.EndedAt),
		Attempts: a.run.Attempts, Error: a.run.Error, Code: a.code,
	}
	if a.ended() != "" {
		if v.Text, err = a.text(ctx, h.Store); err != nil {
			return clientError(err)
		}
	}
	httpapi.WriteJSON(w, http.StatusOK, v)
	return nil
}

// OrNull is s in JSON, and null for "".
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
