package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
)

// Sender posts replies to the reply URLs of webhook channels.
type Sender struct {
	targets map[string]config.Webhook
	// Addresses inside are only reached through the second client.
	public, private *http.Client
	now             func() time.Time
}

// NewSender returns a sender for channels by name; the account of an address picks the channel. It reads the secrets
// once, to fail early.
func NewSender(channels map[string]config.Webhook) (*Sender, error) {
	for name, cfg := range channels {
		if cfg.ReplyURL == "" {
			continue
		}
		if _, err := replyKey(cfg); err != nil {
			return nil, fmt.Errorf("channel %s: %w", name, err)
		}
	}
	return &Sender{
		targets: channels,
		public:  client(&net.Dialer{Timeout: dialTimeout, Control: publicOnly}),
		private: client(&net.Dialer{Timeout: dialTimeout}),
		now:     time.Now,
	}, nil
}

const (
	dialTimeout = 10 * time.Second
	// idempotentFor is how long receivers are asked to remember a webhook-id.
	idempotentFor = 24 * time.Hour
	maxAnswer     = 64 << 10
)

func client(d *net.Dialer) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			// No proxy: it would be dialed instead of the receiver, and its address checked instead.
			DialContext:            d.DialContext,
			TLSHandshakeTimeout:    dialTimeout,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        60 * time.Second,
			MaxResponseHeaderBytes: maxAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func replyKey(cfg config.Webhook) (Key, error) {
	keys, err := readKeys([]config.Secret{cfg.ReplySecret})
	if err != nil {
		return Key{}, err
	}
	return keys[0], nil
}

// Close ends idle connections.
func (s *Sender) Close() {
	s.public.CloseIdleConnections()
	s.private.CloseIdleConnections()
}

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
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := s.request(ctx, cfg, m)
	if err != nil {
		return "", err
	}
	resp, err := s.client(cfg).Do(req)
	if err != nil {
		return "", classifyError(err, connected.Load())
	}
	defer resp.Body.Close()
	// Only so that the connection can be used again: the status has said it all.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	if err := classifyStatus(resp, s.now()); err != nil {
		return "", err
	}
	return m.IdemKey, nil
}

// request is signed anew for every try: receivers refuse old times.
func (s *Sender) request(ctx context.Context, cfg config.Webhook, m channel.Send) (*http.Request, error) {
	key, err := replyKey(cfg)
	if err != nil {
		return nil, failed(channel.Credential, err)
	}
	body, err := json.Marshal(message{
		Type: "message", Channel: m.Target.Account, Conversation: m.Target.ChatID, Thread: m.Target.ThreadID, RunID: m.RunID,
		MessageID: m.IdemKey, Text: m.Part.Markdown, Parts: []channel.Part{m.Part}, CreatedAt: m.CreatedAt.UTC(),
	})
	if err != nil {
		return nil, failed(channel.Permanent, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.ReplyURL, bytes.NewReader(body))
	if err != nil {
		return nil, failed(channel.Permanent, errors.New("reply_url is not a URL")) // without the URL
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "hermes-webhook/1")
	key.SetHeaders(req.Header, m.IdemKey, s.now(), body)
	return req, nil
}

func (s *Sender) client(cfg config.Webhook) *http.Client {
	if cfg.AllowPrivate {
		return s.private
	}
	return s.public
}

func failed(class channel.Class, err error) *channel.SendError {
	return &channel.SendError{Class: class, Err: err}
}

// classifyError tells a receiver that was never reached from one that may have read the message.
func classifyError(err error, connected bool) *channel.SendError {
	// The URL of a url.Error may hold a credential.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	switch {
	case errors.Is(err, errPrivate):
		return failed(channel.Permanent, errPrivate)
	case connected:
		return failed(channel.Unknown, err)
	default:
		return failed(channel.NotSent, err)
	}
}
