package telegrambot

import (
	"encoding/json"
	"net/http"

	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// maxBody is far above the largest update.
const maxBody = 4 << 20

// Handler receives the updates of the bots that have a webhook.
type Handler struct {
	bots map[string]*Bot
}

// NewHandler serves those of the bots that are in webhook mode.
func NewHandler(bots []*Bot) *Handler {
	h := &Handler{bots: map[string]*Bot{}}
	for _, b := range bots {
		if b.config.Mode == config.TelegramWebhook {
			h.bots[b.door.Name] = b
		}
	}
	return h
}

// Post takes one update. 2xx means that it is stored, or never will be; anything else makes Telegram send it again.
func (h *Handler) Post(w http.ResponseWriter, r *http.Request) error {
	b, ok := h.bots[r.PathValue("channel")]
	if !ok {
		return httpapi.NotFound("channel")
	}
	if err := b.verify(r); err != nil {
		return err
	}
	body, err := httpapi.ReadBody(w, r, maxBody)
	if err != nil {
		return err
	}
	if !json.Valid(body) {
		return httpapi.Invalid("body", "body: is not JSON")
	}
	self := b.self.Load()
	if self == nil {
		return httpapi.Unavailable("channel_unavailable", "the bot is not known yet")
	}
	events, err := telegram.Parse(body, *self)
	if err != nil {
		b.deps.Intake.Skip(r.Context(), b.door, "", err)
	}
	if err := b.take(r.Context(), events); err != nil {
		b.deps.Logger.WarnContext(r.Context(), "update not accepted", "channel", b.door.Name, "err", err)
		return httpapi.Unavailable("not_accepted", "the update was not accepted, send it again")
	}
	httpapi.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

// verify checks the secret, before anything of the request is read.
func (b *Bot) verify(r *http.Request) error {
	secret, err := b.config.WebhookSecret.Value()
	if err != nil {
		b.deps.Logger.ErrorContext(r.Context(), "webhook secret not readable", "channel", b.door.Name, "err", err)
		return httpapi.Unavailable("channel_unavailable", "the channel cannot verify requests now")
	}
	if err := telegram.VerifyWebhook(r.Header, secret); err != nil {
		return &httpapi.Error{
			Status: http.StatusUnauthorized, Type: httpapi.TypeAuth, Code: "invalid_secret", Message: "wrong or missing secret token",
		}
	}
	return nil
}
