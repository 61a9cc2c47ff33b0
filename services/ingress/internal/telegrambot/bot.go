package telegrambot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/services/ingress/internal/intake"
	"github.com/hermes-runtime/hermes/services/ingress/internal/poll"
)

// Deps are what a Bot works with.
type Deps struct {
	Intake  *intake.Intake
	Buckets poll.Buckets
	Logger  *slog.Logger
	Timing  poll.Timing
}

// Bot is one channel.
type Bot struct {
	deps   Deps
	door   *intake.Door
	config config.Telegram
	api    *telegram.API
	client *http.Client
	loops  daemon.Loops
	// self is nil until the platform has said who the bot is.
	self atomic.Pointer[telegram.Bot]
}

// New returns the bot of a channel. It reads the secrets once, to fail early; the token is not read again.
func New(name string, c config.Channel, cfg config.Config, deps Deps) (*Bot, error) {
	ch, err := intake.NewChannel(name, c, cfg)
	if err != nil {
		return nil, err // it names the key
	}
	t := c.Telegram.WithDefaults()
	token, err := t.Token.Value()
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	if _, err := t.WebhookSecret.Value(); err != nil {
		return nil, fmt.Errorf("webhook_secret: %w", err)
	}
	client := telegram.NewClient()
	api, err := telegram.NewAPI(token, t.APIURL, client)
	if err != nil {
		return nil, err // it says which setting is wrong
	}
	return &Bot{
		deps: deps, config: t, api: api, client: client,
		door: &intake.Door{Channel: ch, Allow: intake.AllowList{Users: t.AllowUsers, Chats: t.AllowChats}},
	}, nil
}

// ID is the id of the bot.
func (b *Bot) ID() string { return b.api.ID() }

// Start begins to work in the background: a platform that does not answer keeps nobody waiting.
func (b *Bot) Start(ctx context.Context) error {
	b.loops.Go(ctx, b.run)
	return nil
}

// Stop ends what is open: a poller gives its feed back.
func (b *Bot) Stop(ctx context.Context) error {
	defer b.client.CloseIdleConnections()
	return b.loops.Stop(ctx)
}

const callTimeout = 10 * time.Second

func (b *Bot) run(ctx context.Context) {
	if !b.insist(ctx, "getMe", b.identify) {
		return
	}
	switch {
	case b.config.Mode == config.TelegramPoll:
		poll.New(poll.Deps{
			Buckets: b.deps.Buckets, Key: "telegram." + b.ID(), Feed: feed{b}, Logger: b.deps.Logger, Timing: b.deps.Timing,
		}).Run(ctx)
	case b.config.WebhookURL != "":
		b.insist(ctx, "setWebhook", b.register)
	}
}

// insist repeats a call until it succeeds; false: the bot is stopped.
func (b *Bot) insist(ctx context.Context, name string, call func(context.Context) error) bool {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = b.deps.Timing.Retry, b.deps.Timing.MaxRetry
	for first := true; ; first = false {
		err := b.once(ctx, call)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		if first {
			b.deps.Logger.WarnContext(ctx, "telegram does not answer as it should", "channel", b.door.Name, "method", name, "err", err)
		}
		if !daemon.Sleep(ctx, max(delay.NextBackOff(), retryAfter(err))) {
			return false
		}
	}
}

func (b *Bot) once(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

func (b *Bot) identify(ctx context.Context) error {
	self, err := b.api.GetMe(ctx)
	if err != nil {
		return err
	}
	self.Groups = b.config.Groups
	b.self.Store(&self)
	b.deps.Logger.InfoContext(ctx, "telegram bot known", "channel", b.door.Name, "username", self.Username)
	return nil
}

func (b *Bot) register(ctx context.Context) error {
	secret, err := b.config.WebhookSecret.Value()
	if err != nil {
		return err
	}
	return b.api.SetWebhook(ctx, b.config.WebhookURL, secret)
}

// take has the events of one update accepted. It returns nil when the update may be confirmed.
func (b *Bot) take(ctx context.Context, events []channel.Incoming) error {
	for _, in := range events {
		err := b.deps.Intake.Take(ctx, b.door, in)
		if _, invalid := errors.AsType[*accept.InvalidError](err); invalid {
			b.deps.Intake.Skip(ctx, b.door, in.EventID, err)
			err = nil
		}
		if err != nil {
			return err
		}
		if in.Press != nil {
			b.loops.Go(ctx, func(ctx context.Context) { b.answerPress(ctx, in.Press.ID) })
		}
	}
	return nil
}

// answerPress ends the waiting sign on a button. If it fails, the sign ends by itself a little later.
func (b *Bot) answerPress(ctx context.Context, id string) {
	err := b.once(ctx, func(ctx context.Context) error { return b.api.AnswerCallback(ctx, id, "") })
	if err != nil {
		b.deps.Logger.DebugContext(ctx, "press not answered", "channel", b.door.Name, "err", err)
	}
}

func retryAfter(err error) time.Duration {
	if refusal, ok := errors.AsType[*telegram.APIError](err); ok {
		return refusal.RetryAfter
	}
	return 0
}
