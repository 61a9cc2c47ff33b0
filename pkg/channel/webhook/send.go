package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
)

// Sender posts replies to the reply URLs of webhook channels.
type Sender struct {
	targets map[string]config.Webhook
	poster  *Poster
}

// NewSender returns a sender for channels by name; the account of an address picks the channel. It reads the secrets
// once, to fail early.
func NewSender(channels map[string]config.Webhook) (*Sender, error) {
	for name, cfg := range channels {
		if cfg.ReplyURL == "" {
			continue
		}
		if err := CheckSecret(cfg.ReplySecret); err != nil {
			return nil, fmt.Errorf("channel %s: %w", name, err)
		}
	}
	return &Sender{targets: channels, poster: NewPoster()}, nil
}

// idempotentFor is how long receivers are asked to remember a webhook-id.
const idempotentFor = 24 * time.Hour

// Close ends idle connections.
func (s *Sender) Close() { s.poster.Close() }

// Capability knows no limit of size, and receivers drop what they have seen by webhook-id.
func (s *Sender) Capability() channel.Capability {
	return channel.Capability{IdempotentFor: idempotentFor}
}

// Split changes nothing: each part is a message of its own.
func (s *Sender) Split(parts []channel.Part) []channel.Part { return parts }

// message is the body of a reply.
type message struct {
	Type         string         `json:"type"`
	Channel      string         `json:"channel"`
	Conversation string         `json:"conversation"`
	Thread       string         `json:"thread,omitempty"`
	RunID        string         `json:"run_id,omitempty"`
	MessageID    string         `json:"message_id"`
	Text         string         `json:"text"`
	Parts        []channel.Part `json:"parts"`
	CreatedAt    time.Time      `json:"created_at"`
}

// Send posts one message; 2xx is success. The platform's id of it is the webhook-id.
func (s *Sender) Send(ctx context.Context, m channel.Send) (string, error) {
	cfg, ok := s.targets[m.Target.Account]
	if !ok || cfg.ReplyURL == "" {
		return "", failed(channel.Permanent, errors.New("the channel has no reply_url"))
	}
	body, err := json.Marshal(message{
		Type: "message", Channel: m.Target.Account, Conversation: m.Target.ChatID, Thread: m.Target.ThreadID, RunID: m.RunID,
		MessageID: m.IdemKey, Text: m.Part.Markdown, Parts: []channel.Part{m.Part}, CreatedAt: m.CreatedAt.UTC(),
	})
	if err != nil {
		return "", failed(channel.Permanent, err)
	}
	err = s.poster.Post(ctx, Post{
		URL: cfg.ReplyURL, Secret: cfg.ReplySecret, AllowPrivate: cfg.AllowPrivate, ID: m.IdemKey, Body: body,
	})
	if err != nil {
		return "", err // it says what happened to the message
	}
	return m.IdemKey, nil
}
