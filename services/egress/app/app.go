// Package app wires the egress service: replies leave through it.
package app

import (
	"context"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/services/egress/internal/delivery"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

const scope = "github.com/hermes-runtime/hermes/services/egress"

// App is the egress service.
type App struct {
	backends  backends.Backends
	group     daemon.Group
	emitter   *hook.Emitter
	webhooks  *webhook.Sender
	deliverer *delivery.Deliverer
}

// New builds the service; it uses the bus, the store and telemetry of b.
func New(cfg config.Config, b backends.Backends) (*App, error) {
	webhooks, err := newWebhooks(cfg)
	if err != nil {
		return nil, err
	}
	emitter := hook.NewEmitter(b.Bus, b.Logger)
	deliverer, err := delivery.New(
		delivery.Config{ID: processID(cfg.Egress.ID), SendTimeout: cfg.Egress.SendTimeout, Parallel: delivery.DefaultParallel},
		delivery.Deps{
			Bus: b.Bus, Outbox: b.Store, Emitter: emitter, Logger: b.Logger,
			Tracer: b.Traces.Tracer(scope), Meter: b.Meters.Meter(scope),
			// Also without a channel: rows of a channel that was removed are settled rather than kept waiting.
			Senders: map[string]channel.Sender{webhook.Platform: webhooks},
		})
	if err != nil {
		return nil, err // says what it is about
	}
	return &App{
		backends: b, group: daemon.Group{Logger: b.Logger}, emitter: emitter, webhooks: webhooks, deliverer: deliverer,
	}, nil
}

func newWebhooks(cfg config.Config) (*webhook.Sender, error) {
	channels := map[string]config.Webhook{}
	for name, c := range cfg.Channels {
		if c.Platform == webhook.Platform {
			channels[name] = c.Webhook
		}
	}
	s, err := webhook.NewSender(channels)
	if err != nil {
		return nil, fmt.Errorf("webhook replies: %w", err)
	}
	return s, nil
}

// processID is the configured name, or the host's and a random part.
func processID(configured string) string {
	if configured != "" {
		return configured
	}
	host, err := os.Hostname()
	if err != nil {
		host = "egress" // the random part tells processes apart
	}
	return host + "-" + uuid.NewString()[:8]
}

// Start begins to deliver.
func (a *App) Start(ctx context.Context) error {
	return a.group.Start(ctx, // the group names the part
		daemon.Named{Name: "lifecycle events", Component: a.emitter},
		daemon.Named{Name: "connections", Component: daemon.Closer(func() error { a.webhooks.Close(); return nil })},
		daemon.Named{Name: "delivery", Component: a.deliverer},
	)
}

// Stop finishes what is in hand and ends.
func (a *App) Stop(ctx context.Context) error {
	return a.group.Stop(ctx) // the group names the part
}

// Checks asks both: without one of them nothing is delivered; replies wait in the store.
func (a *App) Checks() []daemon.Check {
	return []daemon.Check{
		{Name: "nats", Ready: a.backends.Bus.Ready},
		{Name: "postgres", Ready: a.backends.Store.Ready},
	}
}
