// Package app wires the egress service: replies leave through it.
package app

import (
	"context"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/services/egress/internal/delivery"
	"github.com/hermes-runtime/hermes/services/egress/internal/hooks"
	"github.com/hermes-runtime/hermes/services/egress/internal/live"
	"github.com/hermes-runtime/hermes/services/egress/internal/rate"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

const scope = "github.com/hermes-runtime/hermes/services/egress"

// App is the egress service.
type App struct {
	backends  backends.Backends
	group     daemon.Group
	emitter   *hook.Emitter
	webhooks  *webhook.Sender
	bots      *telegram.Sender
	deliverer *delivery.Deliverer
	watcher   *live.Watcher
	hooks     *hooks.Host
}

// New builds the service. Of b it uses the bus, the store and telemetry, and, where they are there, the leases and the
// shared rates: without leases no answers are shown while they are written.
func New(cfg config.Config, b backends.Backends) (*App, error) {
	webhooks, err := webhook.NewSender(channelsOf(cfg, webhook.Platform, func(c config.Channel) config.Webhook { return c.Webhook }))
	if err != nil {
		return nil, fmt.Errorf("webhook replies: %w", err)
	}
	bots, err := telegram.NewSender(channelsOf(cfg, telegram.Platform, func(c config.Channel) config.Telegram { return c.Telegram }))
	if err != nil {
		return nil, fmt.Errorf("telegram replies: %w", err)
	}
	if b.Limits == nil {
		b.Limits = ratelimit.NewLocal()
	}
	// Also without a channel: rows of a channel that was removed are settled rather than kept waiting.
	senders := map[string]channel.Sender{webhook.Platform: webhooks, telegram.Platform: bots}
	emitter := hook.NewEmitter(b.Bus, b.Logger)
	id := processID(cfg.Egress.ID)
	deps := delivery.Deps{
		Bus: b.Bus, Outbox: b.Store, Chats: b.Store, Limits: b.Limits, Emitter: emitter, Logger: b.Logger,
		Tracer: b.Traces.Tracer(scope), Meter: b.Meters.Meter(scope), Senders: senders,
	}
	shown := live.Deps{
		Bus: b.Bus, Store: b.Store, Gate: rate.NewGate(b.Limits, b.Logger), Senders: senders, Logger: b.Logger,
		Meter: b.Meters.Meter(scope),
	}
	if b.Leases != nil {
		deps.Previews, shown.Previews = b.Leases, b.Leases
	}
	deliverer, err := delivery.New(delivery.Config{
		ID: id, SendTimeout: cfg.Egress.SendTimeout, PreviewStop: delivery.DefaultPreviewStop, Parallel: delivery.DefaultParallel,
	}, deps)
	if err != nil {
		return nil, err // says what it is about
	}
	watcher, err := live.New(live.Config{ID: id, Max: live.DefaultMax}, shown)
	if err != nil {
		return nil, err // says what it is about
	}
	observers, err := hooks.New(cfg, hooks.Deps{
		Bus: b.Bus, Logger: b.Logger, Meter: b.Meters.Meter(scope), Timing: hooks.DefaultTiming(),
	})
	if err != nil {
		return nil, err // names the key
	}
	return &App{
		backends: b, group: daemon.Group{Logger: b.Logger}, emitter: emitter, webhooks: webhooks, bots: bots,
		deliverer: deliverer, watcher: watcher, hooks: observers,
	}, nil
}

// channelsOf are the sections of the channels of one platform, by name.
func channelsOf[T any](cfg config.Config, platform string, section func(config.Channel) T) map[string]T {
	channels := map[string]T{}
	for name, c := range cfg.Channels {
		if c.Platform == platform {
			channels[name] = section(c)
		}
	}
	return channels
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
		daemon.Named{Name: "connections", Component: daemon.Closer(a.disconnect)},
		daemon.Named{Name: "delivery", Component: a.deliverer},
		daemon.Named{Name: "live", Component: a.watcher},
		daemon.Named{Name: "hooks", Component: a.hooks},
	)
}

// disconnect ends idle connections to platforms.
func (a *App) disconnect() error {
	a.webhooks.Close()
	a.bots.Close()
	return nil
}

// Stop finishes what is in hand and ends.
func (a *App) Stop(ctx context.Context) error {
	return a.group.Stop(ctx) // the group names the part
}

// Checks asks both: without one of them nothing is delivered; replies wait in the store. Without Redis answers are not
// shown while they are written, and each process keeps the rates by itself.
func (a *App) Checks() []daemon.Check {
	checks := []daemon.Check{
		{Name: "nats", Ready: a.backends.Bus.Ready},
		{Name: "postgres", Ready: a.backends.Store.Ready},
	}
	if a.backends.Leases != nil {
		checks = append(checks, daemon.Check{Name: "redis", Ready: a.backends.Leases.Ready, Optional: true})
	}
	return checks
}
