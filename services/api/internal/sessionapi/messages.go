package sessionapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Acceptor stores messages.
type Acceptor interface {
	Accept(ctx context.Context, m *event.Message) (accept.Receipt, error)
}

// Deps are what the handler works with.
type Deps struct {
	Acceptor Acceptor
	Runs     runapi.Deps
	Gate     *drain.Gate
}

// Handler serves sessions.
type Handler struct {
	Deps
	profile, pool string
	keys          session.Options
	maxBody       int64
}

// New returns a handler whose sessions are answered by the profile that cfg names.
func New(cfg config.Config, d Deps) (*Handler, error) {
	profile, ok := cfg.Profiles[cfg.API.Profile]
	if !ok {
		return nil, fmt.Errorf("api.profile: %q is not in profiles", cfg.API.Profile)
	}
	return &Handler{
		Deps: d, profile: cfg.API.Profile, pool: profile.WithDefaults().Pool,
		keys: profile.KeyOptions(cfg.API.Profile), maxBody: cfg.Engine.MaxBodyBytes,
	}, nil
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
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return h.stream(w, r, m)
	}
	a, err := h.accept(r.Context(), m)
	if err != nil {
		return err
	}
	if wait > 0 {
		return h.wait(w, r, m, a, wait)
	}
	httpapi.WriteJSON(w, http.StatusAccepted, a)
	return nil
}

// message reads and checks the request.
func (h *Handler) message(w http.ResponseWriter, r *http.Request) (*event.Message, error) {
	id := r.PathValue("id")
	if err := accept.CheckID("id", id); err != nil {
		return nil, httpapi.FromAccept(err, nil)
	}
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	if err := httpapi.CheckJSON(r); err != nil {
		return nil, err
	}
	raw, err := httpapi.ReadBody(w, r, h.maxBody)
	if err != nil {
		return nil, err
	}
	c, err := decode(raw)
	if err != nil {
		return nil, err
	}
	p := auth.From(r.Context())
	src := h.source(id, p.User)
	m := &event.Message{
		Tenant: p.Tenant, SessionKey: session.Key(src, h.keys), Profile: h.profile, RunClass: h.pool,
		Kind: event.KindMessage, Source: src,
		ReplyTo: event.Address{Platform: event.PlatformAPI, Account: event.PlatformAPI, ChatID: id},
		Text:    c.Text, Attachments: c.Attachments, PlatformMessageID: key,
		ReceivedAt: time.Now().UTC(), Fingerprint: c.fingerprint(),
	}
	m.SKey = session.SKey(m.Tenant, m.SessionKey)
	m.UID = event.UID(m.Tenant, m.Source, m.PlatformMessageID, m.Kind, "")
	return m, nil
}

// source is where the messages of a client's session come from. The session does not depend on the user.
func (h *Handler) source(id, user string) session.Source {
	return session.Source{
		Platform: event.PlatformAPI, Account: event.PlatformAPI, ChatID: session.EscapeID(id), ChatType: "dm", UserID: user,
	}
}

func keyOf(r *http.Request) (string, error) {
	values := r.Header.Values(keyHeader)
	if len(values) > 0 {
		return values[0], checkKey(values)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make message id: %w", err)
	}
	return id.String(), nil
}

// storeWait bounds what a client waits for the store that does not want to wait for the answer.
const storeWait = time.Second

// accept publishes m unless the store has it. It tells conflicts as far as the store tells them in time.
func (h *Handler) accept(ctx context.Context, m *event.Message) (accepted, error) {
	quick, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if sub, err := h.Runs.Submission(quick, target(m)); err == nil {
		return answerTo(m, sub, true)
	}
	receipt, err := h.Acceptor.Accept(ctx, m)
	if err != nil {
		return accepted{}, httpapi.FromAccept(err, map[string]string{"platform_message_id": keyHeader, "message": "body"})
	}
	if receipt.Duplicate {
		quick, cancel := context.WithTimeout(ctx, storeWait)
		defer cancel()
		if sub, err := h.Runs.AwaitSubmission(quick, target(m)); err == nil {
			return answerTo(m, sub, true)
		}
	}
	return answerTo(m, store.Submission{}, receipt.Duplicate)
}

func target(m *event.Message) runapi.Target { return runapi.Target{SKey: m.SKey, UID: m.UID} }

// answerTo tells the client of its message; sub is what the store knows of it, the zero Submission if nothing.
func answerTo(m *event.Message, sub store.Submission, duplicate bool) (accepted, error) {
	if sub.Body != nil {
		if err := checkSame(m, sub); err != nil {
			return accepted{}, err
		}
	}
	id := accept.MessageID(m.SKey, m.UID)
	a := accepted{MessageID: id, SessionID: m.ReplyTo.ChatID, EventsURL: "/v1/runs/" + id + "/events", Duplicate: duplicate}
	if sub.Run.ID != uuid.Nil {
		a.RunID = runapi.OrNull(sub.Run.ID.String())
	}
	return a, nil
}

// checkSame returns the 409 of a key that was used with another body.
func checkSame(m *event.Message, sub store.Submission) error {
	var stored event.Message
	if err := json.Unmarshal(sub.Body, &stored); err != nil {
		return fmt.Errorf("decode inbox body: %w", err)
	}
	if stored.Fingerprint == m.Fingerprint {
		return nil
	}
	return &httpapi.Error{
		Status: http.StatusConflict, Type: httpapi.TypeConflict, Param: keyHeader, Code: "idempotency_conflict",
		Message: keyHeader + ": was used with another body",
	}
}
