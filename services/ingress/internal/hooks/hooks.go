// Package hooks is the door of generic webhooks: POST /v1/hooks/{channel}.
//
// A request is read, verified on its raw bytes, taken apart and accepted; the answer comes after the broker has stored
// the message. Safe for concurrent use.
package hooks

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/services/ingress/internal/intake"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Handler serves all webhook channels.
type Handler struct {
	channels map[string]*hook
	acceptor *accept.Acceptor
	logger   *slog.Logger
	maxBody  int64
	now      func() time.Time
}

// hook is one channel.
type hook struct {
	intake.Channel
	receiver *webhook.Receiver
	replies  bool
}

// New returns the handler of the webhook channels in cfg.
func New(cfg config.Config, acceptor *accept.Acceptor, logger *slog.Logger) (*Handler, error) {
	h := &Handler{
		channels: map[string]*hook{}, acceptor: acceptor, logger: logger, maxBody: cfg.Engine.MaxBodyBytes, now: time.Now,
	}
	for name, c := range cfg.Channels {
		if c.Platform != webhook.Platform {
			continue
		}
		one, err := newHook(name, c, cfg)
		if err != nil {
			return nil, fmt.Errorf("channels.%s.webhook: %w", name, err)
		}
		h.channels[name] = one
	}
	return h, nil
}

func newHook(name string, c config.Channel, cfg config.Config) (*hook, error) {
	if c.Webhook.Unsigned && len(c.Webhook.Secrets) == 0 && !config.Loopback(cfg.Ingress.Addr) {
		return nil, fmt.Errorf("unsigned: is only allowed while ingress.addr %s is a loopback address", cfg.Ingress.Addr)
	}
	receiver, err := webhook.NewReceiver(c.Webhook)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	ch, err := intake.NewChannel(name, c, cfg)
	if err != nil {
		return nil, err // it names the key
	}
	return &hook{Channel: ch, receiver: receiver, replies: c.Webhook.ReplyURL != ""}, nil
}

// accepted is the answer to an accepted event.
type accepted struct {
	MessageID string `json:"message_id"`
	Duplicate bool   `json:"duplicate"`
}

// Post accepts one event.
func (h *Handler) Post(w http.ResponseWriter, r *http.Request) error {
	c, ok := h.channels[r.PathValue("channel")]
	if !ok {
		return httpapi.NotFound("channel")
	}
	body, err := httpapi.ReadBody(w, r, h.maxBody)
	if err != nil {
		return err
	}
	now := h.now()
	if err := h.verify(r, c, body, now); err != nil {
		return err
	}
	if err := httpapi.CheckJSON(r); err != nil {
		return err
	}
	m, err := c.message(r.Header, body, now)
	if err != nil {
		return err
	}
	receipt, err := h.acceptor.Accept(r.Context(), m)
	if err != nil {
		return httpapi.FromAccept(err, nil)
	}
	httpapi.WriteJSON(w, http.StatusAccepted, accepted{MessageID: receipt.MessageID(), Duplicate: receipt.Duplicate})
	return nil
}

func (h *Handler) verify(r *http.Request, c *hook, body []byte, now time.Time) error {
	err := c.receiver.Verify(r.Header, body, now)
	if err == nil {
		return nil
	}
	if !errors.Is(err, webhook.ErrSignature) {
		h.logger.ErrorContext(r.Context(), "webhook secret not readable", "channel", c.Name, "err", err)
		return httpapi.Unavailable("channel_unavailable", "the channel cannot verify requests now")
	}
	return &httpapi.Error{
		Status: http.StatusUnauthorized, Type: httpapi.TypeAuth, Code: "invalid_signature", Message: err.Error(),
	}
}

// message builds the event of a verified request.
func (c *hook) message(header http.Header, body []byte, now time.Time) (*event.Message, error) {
	in, err := c.receiver.Parse(header, body, now)
	if field, ok := errors.AsType[*webhook.FieldError](err); ok {
		return nil, httpapi.Invalid(field.Field, field.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("parse webhook: %w", err)
	}
	if err := checkIDs(in); err != nil {
		return nil, httpapi.FromAccept(err, nil)
	}
	src := session.Source{
		Platform: webhook.Platform, Account: c.Name, ChatType: "dm",
		ChatID: session.EscapeID(in.Conversation), UserID: in.User, ThreadID: session.EscapeID(in.Thread),
	}
	m := c.Message(src)
	m.Kind, m.ReplyTo, m.Text = event.KindMessage, c.replyTo(in), in.Text
	m.PlatformMessageID, m.ReceivedAt = in.ID, now.UTC()
	m.BusyPolicy = cmp.Or(in.Policy, m.BusyPolicy)
	return m, nil
}

func checkIDs(in webhook.Incoming) error {
	if err := accept.CheckID(in.ConversationField, in.Conversation); err != nil {
		return err
	}
	for _, f := range [...]struct{ field, id string }{
		{in.UserField, in.User}, {in.ThreadField, in.Thread}, {in.IDField, in.ID},
	} {
		if err := accept.CheckOptionalID(f.field, f.id); err != nil {
			return err
		}
	}
	return nil
}

// replyTo is where answers go: to the reply URL, with the ids as the client wrote them, or nowhere; then they are read
// through the API.
func (c *hook) replyTo(in webhook.Incoming) event.Address {
	a := event.Address{Platform: event.PlatformAPI, Account: c.Name, ChatID: in.Conversation, ThreadID: in.Thread}
	if c.replies {
		a.Platform = webhook.Platform
	}
	return a
}
