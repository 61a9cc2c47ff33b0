package sessionapi

import (
	"net/http"

	"github.com/hermes-runtime/hermes/services/api/internal/submit"
)

// stream accepts m and answers with its events. The feed is opened before the message is published: nothing of the run
// is missed, however fast it is.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, m submit.Submission) error {
	ctx, cancel := h.Gate.Context(r.Context())
	defer cancel()
	feed := h.runs.Open(ctx, m.Target(), nil)
	defer feed.Close()
	a, err := h.Submit.Accept(ctx, m, fields())
	if err != nil {
		return err
	}
	feed.FromStart = !a.Duplicate
	h.runs.Stream(ctx, w, r, feed, answerTo(m, a))
	return nil
}
