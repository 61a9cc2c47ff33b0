// Package app wires the ingress service: the HTTP edge of platforms.
package app

import (
	"context"
	"net/http"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/services/ingress/internal/hooks"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

const scope = "github.com/hermes-runtime/hermes/services/ingress"

// App is the ingress service.
type App struct {
	backends backends.Backends
	group    daemon.Group
	emitter  *hook.Emitter
	server   *daemon.HTTPServer
}

// New builds the service; it uses the bus and telemetry of b.
func New(cfg config.Config, b backends.Backends) (*App, error) {
	emitter := hook.NewEmitter(b.Bus, b.Logger)
	acceptor := accept.New(accept.Deps{Bus: b.Bus, Emitter: emitter, Logger: b.Logger, Tracer: b.Traces.Tracer(scope)})
	webhooks, err := hooks.New(cfg, acceptor, b.Logger)
	if err != nil {
		return nil, err
	}
	routes := httpapi.NewRoutes(b.Logger)
	routes.Handle(http.MethodPost, "/v1/hooks/{channel}", webhooks.Post)
	handler := routes.Frame(httpapi.Telemetry{Traces: b.Traces, Meters: b.Meters, Public: true})
	return &App{
		backends: b,
		group:    daemon.Group{Logger: b.Logger},
		emitter:  emitter,
		server:   daemon.NewHTTPServer(cfg.Ingress.Addr, handler, b.Logger),
	}, nil
}

// Start begins to serve.
func (a *App) Start(ctx context.Context) error {
	return a.group.Start(ctx, // the group names the part
		daemon.Named{Name: "lifecycle events", Component: a.emitter},
		daemon.Named{Name: "http", Component: a.server},
	)
}

// Stop answers open requests and ends.
func (a *App) Stop(ctx context.Context) error {
	return a.group.Stop(ctx) // the group names the part
}

// Addr is the address in use, once started.
func (a *App) Addr() string { return a.server.Addr() }

// Checks asks the broker: without it nothing can be accepted.
func (a *App) Checks() []daemon.Check {
	return []daemon.Check{{Name: "nats", Ready: a.backends.Bus.Ready}}
}
