package sessionapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/api/internal/submit"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// maxWait is in seconds.
const maxWait = 120

// waitOf is how long the client wants to wait for the answer.
func waitOf(r *http.Request) (time.Duration, error) {
	query := r.URL.Query()
	if !query.Has("wait") {
		return 0, nil
	}
	seconds, err := strconv.Atoi(query.Get("wait"))
	if err != nil || seconds < 0 || seconds > maxWait {
		return 0, httpapi.Invalid("wait", fmt.Sprintf("wait: must be a number of seconds from 0 to %d", maxWait))
	}
	return time.Duration(seconds) * time.Second, nil
}

// wait accepts m and answers when its run has ended.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, m submit.Submission, limit time.Duration) error {
	ctx, cancel := h.Gate.Context(r.Context())
	defer cancel()
	feed := h.runs.Open(ctx, m.Target(), nil)
	defer feed.Close()
	stored, err := h.Submit.Accept(r.Context(), m, fields())
	if err != nil {
		return err
	}
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, limit, errWaited)
	defer cancelTimeout()
	a := answerTo(m, stored)
	final, err := h.answer(ctx, feed, m, &a)
	problem := waitError(err)
	if err == nil {
		problem = runapi.Unanswered(final)
	}
	switch {
	case problem != nil:
		httpapi.WriteErrorWith(w, problem, map[string]any{
			"message_id": a.MessageID, "session_id": a.SessionID, "run_id": a.RunID, "events_url": a.EventsURL, "duplicate": a.Duplicate,
		})
	case err != nil:
		return err
	default:
		httpapi.WriteJSON(w, http.StatusOK, answered{accepted: a, State: string(final.Kind), Text: final.Text, Usage: final.Usage})
	}
	return nil
}

// answered is accepted with the answer.
type answered struct {
	accepted
	State string          `json:"state"`
	Text  string          `json:"text"`
	Usage json.RawMessage `json:"usage,omitempty"`
}

// answer follows the message to its end and notes in a which run answers it.
func (h *Handler) answer(ctx context.Context, feed *runapi.Feed, m submit.Submission, a *accepted) (final runapi.Event, err error) {
	if err := h.Submit.Check(ctx, m); err != nil {
		return runapi.Event{}, err
	}
	err = feed.Run(ctx, func(e runapi.Event) error {
		if e.Kind == runapi.RunStarted || e.Kind.Final() {
			a.RunID = runapi.OrNull(e.RunID)
		}
		final = e
		return nil
	})
	return final, err
}

var errWaited = errors.New("the time to wait is over")

// waitError is the answer to a client whose message is accepted and not answered yet; nil if it is another error.
func waitError(err error) *httpapi.Error {
	switch {
	case errors.Is(err, errWaited):
		return &httpapi.Error{
			Status: http.StatusGatewayTimeout, Type: httpapi.TypeTimeout, Code: "wait_timeout",
			Message: "the run goes on; send the message again with the same Idempotency-Key, or follow events_url",
		}
	case errors.Is(err, drain.ErrStopping):
		return httpapi.Unavailable("stopping", "the service is stopping; the run goes on, follow events_url")
	default:
		return nil
	}
}
