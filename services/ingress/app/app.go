// Package app wires the ingress service: the edge of platforms.
package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/ingress/internal/hooks"
	"github.com/hermes-runtime/hermes/services/ingress/internal/intake"
	"github.com/hermes-runtime/hermes/services/ingress/internal/poll"
	"github.com/hermes-runtime/hermes/services/ingress/internal/telegrambot"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

const scope = "github.com/hermes-runtime/hermes/services/ingress"

// App is the ingress service.
type App struct {
	backends backends.Backends
	group    daemon.Group
	emitter  *hook.Emitter
	intake   *intake.Intake
	bots     []*telegrambot.Bot
	server   *daemon.HTTPServer
}

// New builds the service; it uses the bus, the aliases (those of the store where there are no others) and telemetry of b.
func New(cfg config.Config, b backends.Backends) (*App, error) {
	return build(cfg, b, timing{poll: poll.DefaultTiming(), album: intake.DefaultAlbumWait})
}

// timing is fixed but for tests.
type timing struct {
	poll  poll.Timing
	album time.Duration
}

func build(cfg config.Config, b backends.Backends, t timing) (*App, error) {
	aliases, err := aliasesOf(b)
	if err != nil {
		return nil, err
	}
	emitter := hook.NewEmitter(b.Bus, b.Logger)
	acceptor := accept.New(accept.Deps{Bus: b.Bus, Emitter: emitter, Logger: b.Logger, Tracer: b.Traces.Tracer(scope)})
	webhooks, err := hooks.New(cfg, acceptor, b.Logger)
	if err != nil {
		return nil, err
	}
	taker, err := intake.New(intake.Deps{
		Acceptor: acceptor, Aliases: aliases, Emitter: emitter, Logger: b.Logger, Meter: b.Meters.Meter(scope),
		Now: time.Now, AlbumWait: t.album,
	})
	if err != nil {
		return nil, err
	}
	bots, err := newBots(cfg, telegrambot.Deps{Intake: taker, Buckets: b.Bus, Logger: b.Logger, Timing: t.poll})
	if err != nil {
		return nil, err
	}
	routes := httpapi.NewRoutes(b.Logger)
	routes.Handle(http.MethodPost, "/v1/hooks/{channel}", webhooks.Post)
	routes.Handle(http.MethodPost, "/v1/telegram/{channel}", telegrambot.NewHandler(bots).Post)
	handler := routes.Frame(httpapi.Telemetry{Traces: b.Traces, Meters: b.Meters, Public: true})
	return &App{
		backends: b,
		group:    daemon.Group{Logger: b.Logger},
		emitter:  emitter,
		intake:   taker,
		bots:     bots,
		server:   daemon.NewHTTPServer(cfg.Ingress.Addr, handler, b.Logger),
	}, nil
}

func aliasesOf(b backends.Backends) (store.Aliases, error) {
	switch {
	case b.Aliases != nil:
		return b.Aliases, nil
	case b.Store != nil:
		return b.Store, nil
	default:
		return nil, errors.New("ingress: no store for aliases")
	}
}

// newBots returns the Telegram bots in the order of their channels' names.
func newBots(cfg config.Config, deps telegrambot.Deps) ([]*telegrambot.Bot, error) {
	var bots []*telegrambot.Bot
	byID := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Channels)) {
		if cfg.Channels[name].Platform != telegram.Platform {
			continue
		}
		bot, err := telegrambot.New(name, cfg.Channels[name], cfg, deps)
		if err != nil {
			return nil, fmt.Errorf("channels.%s.telegram: %w", name, err)
		}
		if other, taken := byID[bot.ID()]; taken { // Telegram gives an update out once
			return nil, fmt.Errorf("channels.%s.telegram.token: belongs to the bot of channel %q", name, other)
		}
		byID[bot.ID()] = name
		bots = append(bots, bot)
	}
	return bots, nil
}

// Start begins to serve.
func (a *App) Start(ctx context.Context) error {
	parts := []daemon.Named{
		{Name: "lifecycle events", Component: a.emitter},
		{Name: "intake", Component: a.intake},
	}
	for _, bot := range a.bots {
		parts = append(parts, daemon.Named{Name: "telegram bot " + bot.ID(), Component: bot})
	}
	parts = append(parts, daemon.Named{Name: "http", Component: a.server})
	return a.group.Start(ctx, parts...) // the group names the part
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
