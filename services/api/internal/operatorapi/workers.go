package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// commandTimeout bounds the wait for the answer of a worker.
const commandTimeout = 5 * time.Second

// worker is what a worker last said about itself.
type worker struct {
	ID       string `json:"id"`
	Slots    int    `json:"slots"`
	Used     int    `json:"used"`
	Draining bool   `json:"draining"`
	// SilentSeconds is how long ago that was. One that is silent for 15 s counts as dead.
	SilentSeconds float64 `json:"silent_seconds"`
}

type workerList struct {
	Workers []worker `json:"workers"`
}

// Workers lists the workers that were heard of in the last day.
func (h *Handler) Workers(w http.ResponseWriter, r *http.Request) error {
	found, err := h.Store.Workers(r.Context())
	if err != nil {
		return clientError("workers", err)
	}
	list := workerList{Workers: make([]worker, len(found))}
	for i, s := range found {
		list.Workers[i] = worker{
			ID: s.WorkerID, Slots: s.Slots, Used: s.Used, Draining: s.Draining, SilentSeconds: s.Silent.Seconds(),
		}
	}
	httpapi.WriteJSON(w, http.StatusOK, list)
	return nil
}

// Drain makes a worker take no more runs and hand over those that it has, each at its next step. The process stays up
// until it is stopped.
func (h *Handler) Drain(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := bus.CheckToken("id", id); err != nil {
		return httpapi.Invalid("id", err.Error())
	}
	err := h.command(r.Context(), id, &runv1.WorkerCommand{Kind: runv1.WorkerCommandKind_WORKER_COMMAND_KIND_DRAIN})
	switch {
	case errors.Is(err, bus.ErrNoResponder):
		return httpapi.NotFound("worker")
	case errors.Is(err, errRefused):
		return conflict("worker_refuses", err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return httpapi.Unavailable("worker_silent", "the worker does not answer")
	case err != nil:
		return clientError("worker", err)
	}
	h.did(r, "drain", "worker_id", id)
	httpapi.WriteJSON(w, http.StatusAccepted, map[string]string{"id": id, "state": "draining"})
	return nil
}
