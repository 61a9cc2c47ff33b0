package sessionapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/api/internal/profile"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/api/internal/submit"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Deps are what the handler works with.
type Deps struct {
	Submit submit.Submitter
	Gate   *drain.Gate
}

// Handler serves sessions.
type Handler struct {
	Deps
	runs    runapi.Deps
	profile profile.Profile
	maxBody int64
}

// New returns a handler whose sessions are answered by the profile that cfg names.
func New(cfg config.Config, d Deps) (*Handler, error) {
	p, err := profile.New(cfg, cfg.API.Profile)
	if err != nil {
		return nil, fmt.Errorf("api.profile: %w", err)
	}
	return &Handler{Deps: d, runs: d.Submit.Runs, profile: p, maxBody: cfg.Engine.MaxBodyBytes}, nil
}

// accepted is the answer to an accepted message.
type accepted struct {
	MessageID string `json:"message_id"`
	SessionID string `json:"session_id"`
	// RunID is null while it is not known which run answers the message, or if none does.
	RunID     *string `json:"run_id"`
	EventsURL string  `json:"events_url"`
	Duplicate bool    `json:"duplicate"`
}

// Post accepts a message. The client may wait for its answer (?wait), or have it streamed (Accept: text/event-stream).
func (h *Handler) Post(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	m, err := h.message(w, r)
	if err != nil {
		return err
	}
	switch {
	case strings.Contains(r.Header.Get("Accept"), "text/event-stream"):
		return h.stream(w, r, m)
	case wait > 0:
		return h.wait(w, r, m, wait)
	}
	a, err := h.Submit.Accept(r.Context(), m, fields())
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusAccepted, answerTo(m, a))
	return nil
}

// message reads and checks the request.
func (h *Handler) message(w http.ResponseWriter, r *http.Request) (submit.Submission, error) {
	id := r.PathValue("id")
	if err := accept.CheckID("id", id); err != nil {
		return submit.Submission{}, httpapi.FromAccept(err, nil)
	}
	key, chosen, err := submit.Key(r)
	if err != nil {
		return submit.Submission{}, err
	}
	if err := httpapi.CheckJSON(r); err != nil {
		return submit.Submission{}, err
	}
	raw, err := httpapi.ReadBody(w, r, h.maxBody)
	if err != nil {
		return submit.Submission{}, err
	}
	c, err := decode(raw)
	if err != nil {
		return submit.Submission{}, err
	}
	m := h.profile.Message(auth.From(r.Context()), id, key)
	m.Text, m.Attachments, m.BusyPolicy, m.Fingerprint = c.Text, c.Attachments, c.BusyPolicy, submit.Fingerprint(c)
	return submit.Submission{Message: m, Keyed: chosen}, nil
}

// fields are the names under which clients know the fields of a message.
func fields() map[string]string {
	return map[string]string{"platform_message_id": submit.KeyHeader, "message": "body"}
}

func answerTo(m submit.Submission, a submit.Accepted) accepted {
	return accepted{
		MessageID: a.ID, SessionID: m.ReplyTo.ChatID, RunID: runapi.OrNull(a.RunID),
		EventsURL: "/v1/runs/" + a.ID + "/events", Duplicate: a.Duplicate,
	}
}
