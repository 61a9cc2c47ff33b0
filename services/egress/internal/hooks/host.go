package hooks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
)

// Bus is the part of the broker that hooks use.
type Bus interface {
	bus.WorkQueues
	Notify(ctx context.Context, m bus.Msg) error
	OpenKV(ctx context.Context, bucket string) (bus.KV, error)
}

// Deps are what a Host works with.
type Deps struct {
	Bus    Bus
	Logger *slog.Logger
	Meter  metric.Meter
	Timing Timing
}

// Host runs all hooks of the configuration. It is a daemon.Component that runs once.
type Host struct {
	deps   Deps
	poster *webhook.Poster
	hooks  []hosted
	// id names the process; it is another one after each start.
	id    string
	loops daemon.Loops
}

// hosted is one hook.
type hosted struct {
	name       string
	subscriber *hook.Subscriber
}

// New returns a Host. It reads the secrets once, to fail early.
func New(cfg config.Config, deps Deps) (*Host, error) {
	h := &Host{deps: deps, poster: webhook.NewPoster(), id: rand.Text()}
	for _, name := range slices.Sorted(maps.Keys(cfg.Hooks)) {
		one, err := h.subscribe(name, cfg.Hooks[name].WithDefaults(), cfg.Telemetry.Content)
		if err != nil {
			return nil, fmt.Errorf("hooks.%s: %w", name, err)
		}
		h.hooks = append(h.hooks, hosted{name: name, subscriber: one})
	}
	return h, nil
}

func (h *Host) subscribe(name string, cfg config.Hook, content bool) (*hook.Subscriber, error) {
	sub := hook.Subscription{
		Name: "hook-" + name, Tenants: cfg.Tenants, Timeout: cfg.Timeout, Retries: cfg.Retries,
		Observer: subject{name: cfg.Subject, bus: h.deps.Bus, content: content},
	}
	for _, t := range cfg.Events {
		sub.Types = append(sub.Types, event.Type(t))
	}
	if cfg.URL != "" {
		if err := webhook.CheckSecret(cfg.Secret); err != nil {
			return nil, fmt.Errorf("secret: %w", err)
		}
		sub.Observer = endpoint{cfg: cfg, poster: h.poster, content: content}
	}
	return hook.NewSubscriber(sub, hook.SubscriberDeps{Bus: h.deps.Bus, Logger: h.deps.Logger, Meter: h.deps.Meter})
}

// Start subscribes and begins to deliver what this process gets to serve.
func (h *Host) Start(ctx context.Context) error {
	if len(h.hooks) == 0 {
		return nil
	}
	kv, err := h.deps.Bus.OpenKV(ctx, bucket)
	if err != nil {
		return fmt.Errorf("open seats of hooks: %w", err)
	}
	for _, one := range h.hooks {
		if err := one.subscriber.Open(ctx); err != nil {
			return errors.Join(fmt.Errorf("hook %s: %w", one.name, err), h.loops.Stop(ctx))
		}
		s := &seat{kv: kv, key: "hook." + one.name, holder: h.id, timing: h.deps.Timing, logger: h.deps.Logger}
		h.loops.Go(ctx, func(ctx context.Context) { s.run(ctx, one.subscriber.Run) })
	}
	return nil
}

// Stop gives back what is in hand, and the seats: another process goes on at once.
func (h *Host) Stop(ctx context.Context) error {
	defer h.poster.Close()
	return h.loops.Stop(ctx)
}
