// Package app wires the api service: HTTP for programs and people.
package app

import (
	"cmp"
	"context"
	"net/http"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/api/internal/openaiapi"
	"github.com/hermes-runtime/hermes/services/api/internal/operatorapi"
	"github.com/hermes-runtime/hermes/services/api/internal/quota"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/api/internal/sessionapi"
	"github.com/hermes-runtime/hermes/services/api/internal/submit"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
)

const scope = "github.com/hermes-runtime/hermes/services/api"

// App is the api service.
type App struct {
	backends backends.Backends
	group    daemon.Group
	emitter  *hook.Emitter
	server   *daemon.HTTPServer
	gate     *drain.Gate
	routes   *httpapi.Routes
}

// New builds the service; it uses the bus, the store, the limits and the telemetry of b, and reads the keys of cfg.
// Without limits in b it counts requests by itself.
func New(cfg config.Config, b backends.Backends) (*App, error) {
	return build(cfg, b, runapi.DefaultTiming())
}

func build(cfg config.Config, b backends.Backends, timing runapi.Timing) (*App, error) {
	keys, err := auth.New(cfg.API)
	if err != nil {
		return nil, err
	}
	emitter := hook.NewEmitter(b.Bus, b.Logger)
	gate := drain.New()
	acceptor := accept.New(accept.Deps{Bus: b.Bus, Emitter: emitter, Logger: b.Logger, Tracer: b.Traces.Tracer(scope)})
	following := runapi.Deps{Store: b.Store, Bus: b.Bus, Logger: b.Logger, Timing: timing}
	messages := submit.Submitter{Acceptor: acceptor, Runs: following}
	sessions, err := sessionapi.New(cfg, sessionapi.Deps{Submit: messages, Gate: gate})
	if err != nil {
		return nil, err
	}
	completions, err := openaiapi.New(cfg, openaiapi.Deps{Submit: messages, Gate: gate, Logger: b.Logger})
	if err != nil {
		return nil, err
	}
	runs := runapi.NewHandler(following, acceptor, gate)
	operators, err := newOperators(cfg, b, acceptor, emitter)
	if err != nil {
		return nil, err
	}
	requests := quota.New(cmp.Or(b.Limits, ratelimit.Limiter(ratelimit.NewLocal())), cfg.API.RequestsPerMinute)

	routes := httpapi.NewRoutes(b.Logger)
	handle := func(method, pattern string, h httpapi.Handler) {
		routes.Handle(method, pattern, keys.Require(requests.Limit(h)))
	}
	handle(http.MethodPost, "/v1/sessions/{id}/messages", sessions.Post)
	handle(http.MethodGet, "/v1/sessions/{id}", sessions.Get)
	handle(http.MethodGet, "/v1/runs/{id}", runs.Run)
	handle(http.MethodGet, "/v1/runs/{id}/events", runs.Events)
	handle(http.MethodPost, "/v1/runs/{id}/cancel", runs.Cancel)
	handle(http.MethodPost, "/v1/chat/completions", completions.Complete)
	handle(http.MethodGet, "/v1/models", completions.Models)
	handle(http.MethodGet, "/v1/models/{id}", completions.Model)
	for _, r := range operators.Routes() {
		handle(r.Method, r.Pattern, r.Handler())
	}
	handler := named(routes.Frame(httpapi.Telemetry{Traces: b.Traces, Meters: b.Meters, Public: true}))
	return &App{
		backends: b,
		group:    daemon.Group{Logger: b.Logger},
		emitter:  emitter,
		server:   daemon.NewHTTPServer(cfg.API.Addr, handler, b.Logger),
		gate:     gate,
		routes:   routes,
	}, nil
}

func newOperators(
	cfg config.Config, b backends.Backends, acceptor *accept.Acceptor, events *hook.Emitter,
) (*operatorapi.Handler, error) {
	killer, err := takeover.New(takeover.Deps{
		Store: b.Store, Bus: b.Bus, Events: events, StallLimit: cfg.Engine.StallLimit, AttemptLimit: cfg.Engine.AttemptLimit,
		Logger: b.Logger, Meter: b.Meters.Meter(scope),
	})
	if err != nil {
		return nil, err
	}
	return operatorapi.New(operatorapi.Deps{
		Store: b.Store, Bus: b.Bus, Acceptor: acceptor, Killer: killer, Logger: b.Logger,
	}), nil
}

// named refuses an empty session id by its name; the frame knows only that the path is none.
func named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/v1/sessions/", "/v1/sessions//messages":
			httpapi.WriteError(w, httpapi.Invalid("id", "id: must not be empty"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Start begins to serve.
func (a *App) Start(ctx context.Context) error {
	return a.group.Start(ctx, // the group names the part
		daemon.Named{Name: "lifecycle events", Component: a.emitter},
		daemon.Named{Name: "http", Component: a.server},
		daemon.Named{Name: "streams", Component: a.gate},
	)
}

// Stop ends streams and waits, answers the other open requests and ends.
func (a *App) Stop(ctx context.Context) error {
	return a.group.Stop(ctx) // the group names the part
}

// Addr is the address in use, once started.
func (a *App) Addr() string { return a.server.Addr() }

// Checks asks both: nothing is accepted without the broker, and nothing is answered without the store. Messages are
// accepted all the same while only the store is down.
func (a *App) Checks() []daemon.Check {
	return []daemon.Check{
		{Name: "nats", Ready: a.backends.Bus.Ready},
		{Name: "postgres", Ready: a.backends.Store.Ready},
	}
}
