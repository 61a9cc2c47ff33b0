package runapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Acceptor stores messages.
type Acceptor interface {
	Accept(ctx context.Context, m *event.Message) (accept.Receipt, error)
}

// StopText stops the current run of a session.
const StopText = "/stop"

// cancelling is the answer to an accepted cancellation.
type cancelling struct {
	RunID     string `json:"run_id"`
	EventsURL string `json:"events_url"`
}

// Cancel stops a run, by way of its session's inbox: how it ends is told by its events.
func (h *Handler) Cancel(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := h.gate.Context(r.Context())
	defer cancel()
	target, err := h.awaitTarget(ctx, auth.From(ctx), r.PathValue("id"))
	if errors.Is(err, drain.ErrStopping) {
		return httpapi.Unavailable("stopping", "the service is stopping, send the request again")
	}
	if err != nil {
		return err
	}
	s, err := h.current(ctx, target)
	if err != nil {
		return clientError(err)
	}
	if _, err := h.acceptor.Accept(ctx, stopOf(s, auth.From(ctx))); err != nil {
		return httpapi.FromAccept(err, nil)
	}
	id := s.RunID.String()
	httpapi.WriteJSON(w, http.StatusAccepted, cancelling{RunID: id, EventsURL: "/v1/runs/" + id + "/events"})
	return nil
}

// current returns the session of t, if what t names is its current run. Anything else would stop the run of another
// message.
func (d Deps) current(ctx context.Context, t Target) (store.Session, error) {
	a, err := read(ctx, d.Store, t)
	if err != nil {
		return store.Session{}, err
	}
	s, err := d.Store.Session(ctx, t.SKey)
	switch {
	case err != nil:
		return s, fmt.Errorf("read session: %w", err)
	case a.ended() != "":
		return s, cannotCancel("run_ended", "the run has ended")
	case a.run.ID != uuid.Nil && a.run.ID != s.RunID: // between the two reads
		return s, cannotCancel("run_ended", "the run has ended")
	case a.run.ID != uuid.Nil:
		return s, nil
	}
	answered, err := d.answers(ctx, s, t.UID)
	switch {
	case err != nil:
		return s, err
	case !answered:
		return s, cannotCancel("message_waiting", "the message waits for its turn, it has no run yet")
	default:
		return s, nil
	}
}

// answers reports whether the current run of s takes the message, by the rule by which its worker does.
func (d Deps) answers(ctx context.Context, s store.Session, uid string) (bool, error) {
	if s.RunID == uuid.Nil {
		return false, nil
	}
	rows, err := d.Store.InboxAfter(ctx, s.SKey, s.DoneSeq)
	if err != nil {
		return false, fmt.Errorf("read inbox: %w", err)
	}
	stored, err := d.Store.RunMessages(ctx, s.RunID)
	if err != nil {
		return false, fmt.Errorf("read messages of run: %w", err)
	}
	for _, row := range inbox.Take(rows, s.DoneSeq, s.RunID, stored).Prompt {
		if row.UID == uid {
			return true, nil
		}
	}
	return false, nil
}

func cannotCancel(code, problem string) *httpapi.Error {
	return &httpapi.Error{Status: http.StatusConflict, Type: httpapi.TypeConflict, Code: code, Message: problem}
}

// stopOf is the stop of a session's current run. Its identity is the run's, so that repeating it changes nothing.
func stopOf(s store.Session, who auth.Principal) *event.Message {
	return &event.Message{
		Tenant: s.Tenant, SessionKey: s.SessionKey, Profile: s.AgentID, RunClass: s.RunClass,
		Kind: event.KindMessage, Text: StopText, PlatformMessageID: "cancel:" + s.RunID.String(),
		Source: session.Source{
			Platform: event.PlatformAPI, Account: event.PlatformAPI, ChatID: s.SKey, ChatType: "dm", UserID: who.User,
		},
		ReplyTo: event.Address{Platform: event.PlatformAPI, Account: event.PlatformAPI, ChatID: s.SKey},
	}
}
