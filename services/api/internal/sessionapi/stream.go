package sessionapi

import (
	"net/http"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// stream accepts m and answers with its events. The feed is opened before the message is published: nothing of the run
// is missed, however fast it is.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, m *event.Message) error {
	ctx, cancel := h.Gate.Context(r.Context())
	defer cancel()
	feed := h.Runs.Open(ctx, target(m), nil)
	defer feed.Close()
	a, err := h.accept(ctx, m)
	if err != nil {
		return err
	}
	feed.FromStart = !a.Duplicate
	h.Runs.Stream(ctx, w, r, feed, a)
	return nil
}
