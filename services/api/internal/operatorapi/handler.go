package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/hold"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
)

// Store is the part of the store that operators use.
type Store interface {
	store.Operator
	Session(ctx context.Context, skey string) (store.Session, error)
	Run(ctx context.Context, id uuid.UUID) (store.Run, error)
}

// Bus reaches workers, and the map in which held partitions are noted.
type Bus interface {
	Notify(ctx context.Context, m bus.Msg) error
	Request(ctx context.Context, m bus.Msg) (bus.Msg, error)
	OpenKV(ctx context.Context, bucket string) (bus.KV, error)
	GetObject(ctx context.Context, name string) ([]byte, error)
}

// Killer ends runs.
type Killer interface {
	GiveUp(ctx context.Context, run store.ActiveRun, reason string) (takeover.Result, error)
}

// Deps are what the handler works with.
type Deps struct {
	Store    Store
	Bus      Bus
	Acceptor runapi.Acceptor
	Killer   Killer
	Logger   *slog.Logger
}

// Handler serves operators.
type Handler struct{ Deps }

// New returns a handler.
func New(d Deps) *Handler { return &Handler{d} }

// Routes lists what the handler serves.
func (h *Handler) Routes() []Route {
	return []Route{
		{http.MethodGet, "/v1/operator/sessions", h.Sessions},
		{http.MethodGet, "/v1/operator/sessions/{skey}", h.Session},
		{http.MethodPost, "/v1/operator/sessions/{skey}/pause", h.Pause},
		{http.MethodPost, "/v1/operator/sessions/{skey}/resume", h.Resume},
		{http.MethodPost, "/v1/operator/runs/{id}/kill", h.Kill},
		{http.MethodGet, "/v1/operator/workers", h.Workers},
		{http.MethodPost, "/v1/operator/workers/{id}/drain", h.Drain},
		{http.MethodGet, "/v1/operator/partitions", h.Partitions},
		{http.MethodPost, "/v1/operator/partitions/{partition}/choose", h.Choose},
		{http.MethodGet, "/v1/operator/dead-letters", h.Letters},
		{http.MethodGet, "/v1/operator/dead-letters/{id}", h.Letter},
		{http.MethodPost, "/v1/operator/dead-letters/{id}/replay", h.Replay},
	}
}

// Route is one request that operators may send.
type Route struct {
	Method, Pattern string
	serve           httpapi.Handler
}

// Handler lets only operators pass.
func (r Route) Handler() httpapi.Handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		if !auth.From(req.Context()).Admin() {
			return &httpapi.Error{
				Status: http.StatusForbidden, Type: httpapi.TypePermission, Code: "role_not_allowed",
				Message: "this needs the role admin",
			}
		}
		return r.serve(w, req)
	}
}

// clientError is err as clients see it; what names what was looked for.
func clientError(what string, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, hold.ErrNotHeld):
		return httpapi.NotFound(what)
	case errors.Is(err, store.ErrUnavailable):
		return httpapi.Unavailable("store_unavailable", "the store does not answer now")
	case errors.Is(err, bus.ErrUnavailable):
		return httpapi.Unavailable("broker_unavailable", "the broker does not answer now")
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

func conflict(code, problem string) *httpapi.Error {
	return &httpapi.Error{Status: http.StatusConflict, Type: httpapi.TypeConflict, Code: code, Message: problem}
}

// pathID reads the id of a run or a letter.
func pathID(r *http.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return uuid.Nil, httpapi.Invalid("id", "id: is not a UUID")
	}
	return id, nil
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// limitOf reads how many rows a list may have.
func limitOf(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, httpapi.Invalid("limit", fmt.Sprintf("limit: must be a number from 1 to %d", maxLimit))
	}
	return n, nil
}

// maxBody bounds the small bodies of operators.
const maxBody = 4 << 10

// readInto reads a JSON body.
func readInto(w http.ResponseWriter, r *http.Request, v any) error {
	if err := httpapi.CheckJSON(r); err != nil {
		return err
	}
	raw, err := httpapi.ReadBody(w, r, maxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return httpapi.Invalid("body", "body: is not the expected JSON object")
	}
	return nil
}

// did notes in the log who did what: these are the requests that change what users see.
func (h *Handler) did(r *http.Request, what string, args ...any) {
	h.Logger.InfoContext(r.Context(), "operator request", append([]any{"action", what, "key", auth.From(r.Context()).Key}, args...)...)
}

// at is a time for JSON, null where there is none.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
