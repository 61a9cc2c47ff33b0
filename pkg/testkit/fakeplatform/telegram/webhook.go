package telegram

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"
)

// webhook is where updates are sent; none with an empty url.
type webhook struct {
	url, secret    string
	maxConnections int
	lastError      string
	lastErrorAt    time.Time
}

const defaultConnections = 40

// secretToken is what a secret may look like.
var secretToken = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

func (s *Server) setWebhook(c *call) (any, *apiError) {
	hook := webhook{url: c.args["url"], secret: c.args["secret_token"], maxConnections: int(c.number("max_connections"))}
	if hook.secret != "" && !secretToken.MatchString(hook.secret) {
		return nil, badRequest("secret token contains unallowed characters")
	}
	if hook.maxConnections <= 0 || hook.maxConnections > 100 {
		hook.maxConnections = defaultConnections
	}
	if err := s.updates.allow(c); err != nil {
		return nil, err
	}
	if c.args["drop_pending_updates"] == "true" {
		s.updates.pending = nil
	}
	s.updates.webhook = hook
	s.updates.notify()
	return true, nil
}

func (s *Server) deleteWebhook(c *call) (any, *apiError) {
	if c.args["drop_pending_updates"] == "true" {
		s.updates.pending = nil
	}
	s.updates.webhook = webhook{}
	s.updates.notify()
	return true, nil
}

func (s *Server) getWebhookInfo(*call) (any, *apiError) {
	hook := s.updates.webhook
	info := map[string]any{
		"url": hook.url, "has_custom_certificate": false, "pending_update_count": len(s.updates.pending),
		"max_connections": hook.maxConnections,
	}
	if s.updates.allowed != nil {
		info["allowed_updates"] = s.updates.allowed
	}
	if hook.lastError != "" {
		info["last_error_message"], info["last_error_date"] = hook.lastError, hook.lastErrorAt.Unix()
	}
	return info, nil
}

// deliverWebhooks sends every pending update until it is answered with 2xx. Updates go out in parallel, so those of one
// chat can overtake each other.
func (s *Server) deliverWebhooks() {
	for {
		hook, batch, changed := s.unsent()
		for _, p := range batch {
			s.running.Go(func() { s.deliver(hook, p) })
		}
		select {
		case <-changed:
		case <-s.life.Done():
			return
		}
	}
}

// unsent takes the updates that may be sent now.
func (s *Server) unsent() (webhook, []pending, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hook := s.updates.webhook
	if hook.url == "" {
		return hook, nil, s.updates.changed
	}
	open := 0
	for _, p := range s.updates.pending {
		if p.sending {
			open++
		}
	}
	var batch []pending
	for i := range s.updates.pending {
		if p := &s.updates.pending[i]; !p.sending && open < hook.maxConnections {
			p.sending = true
			batch = append(batch, *p)
			open++
		}
	}
	return hook, batch, s.updates.changed
}

func (s *Server) deliver(hook webhook, p pending) {
	err := s.postUpdate(hook, p)
	if err != nil {
		pause := time.NewTimer(s.opts.WebhookRetry)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-s.life.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.updates.notify()
	i := slices.IndexFunc(s.updates.pending, func(other pending) bool { return other.id == p.id })
	switch {
	case err != nil:
		s.updates.webhook.lastError, s.updates.webhook.lastErrorAt = err.Error(), time.Now()
		if i >= 0 {
			s.updates.pending[i].sending = false
		}
	case i >= 0:
		s.updates.pending = slices.Delete(s.updates.pending, i, i+1)
	}
}

var errStatus = errors.New("wrong response from the webhook")

func (s *Server) postUpdate(hook webhook, p pending) error {
	ctx, cancel := context.WithTimeout(s.life, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.url, bytes.NewReader(p.raw))
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if hook.secret != "" {
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", hook.secret)
	}
	resp, err := s.hooks.Do(req)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%w: %s", errStatus, resp.Status)
	}
	return nil
}
