package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// updates are what has happened and was not confirmed yet, in order of arrival.
type updates struct {
	pending []pending
	nextID  int64
	// allowed is nil for all kinds.
	allowed []string
	webhook webhook
	// changed is closed and replaced when an update comes or the webhook changes.
	changed chan struct{}
	// ousted is closed when another getUpdates takes the place of the one that waits; nil if none waits.
	ousted chan struct{}
}

type pending struct {
	id  int64
	raw json.RawMessage
	// sending: a webhook request carries it.
	sending bool
}

const firstUpdate = 870_000_001

func newUpdates() updates { return updates{nextID: firstUpdate, changed: make(chan struct{})} }

// notify wakes whoever waits for a change.
func (u *updates) notify() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// Push injects an update: a string or bytes are JSON as it is, anything else is encoded. An update_id is added where
// there is none. It returns the id, 0 if the bot does not want this kind. The message in it becomes part of its chat.
func (s *Server) Push(update any) int64 {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(encode(update), &fields); err != nil {
		panic(fmt.Sprintf("telegram double: update is no JSON object: %v", err)) // a mistake of the test
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.push(fields)
}

func (s *Server) push(fields map[string]json.RawMessage) int64 {
	for kind, raw := range fields {
		if kind == "update_id" {
			continue
		}
		s.remember(kind, raw)
		if s.updates.allowed != nil && !slices.Contains(s.updates.allowed, kind) {
			return 0
		}
	}
	var id int64
	if json.Unmarshal(fields["update_id"], &id) != nil || id == 0 {
		id = s.updates.nextID
		fields["update_id"] = encode(id)
	}
	s.updates.nextID = max(s.updates.nextID, id+1)
	s.updates.pending = append(s.updates.pending, pending{id: id, raw: encode(fields)})
	s.updates.notify()
	return id
}

// Pending counts the updates that were not confirmed yet.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates.pending)
}

func encode(v any) json.RawMessage {
	switch v := v.(type) {
	case string:
		return json.RawMessage(v)
	case []byte:
		return v
	case json.RawMessage:
		return v
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("telegram double: encode: %v", err)) // a mistake of the test
	}
	return raw
}

const maxUpdates = 100

// getUpdates waits for updates. Of two callers the one that came first is refused, as the hosted server does it: that is
// why both of two pollers see conflicts.
func (s *Server) getUpdates(ctx context.Context, c *call) (any, *apiError) {
	ousted, err := s.beginPoll(c)
	if err != nil {
		return nil, err
	}
	defer s.endPoll(ousted)
	timeout := time.NewTimer(time.Duration(c.number("timeout")) * time.Second)
	defer timeout.Stop()
	for {
		batch, changed, err := s.batch(int(c.number("limit")))
		if err != nil || len(batch) > 0 {
			return batch, err
		}
		select {
		case <-changed:
		case <-ousted:
			return nil, &apiError{
				code: http.StatusConflict,
				text: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
			}
		case <-timeout.C:
			return batch, nil
		case <-ctx.Done():
			return batch, nil // nobody reads it
		case <-s.life.Done():
			return batch, nil
		}
	}
}

func (s *Server) beginPoll(c *call) (chan struct{}, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.updates.ousted != nil {
		close(s.updates.ousted)
		s.updates.ousted = nil
	}
	if s.updates.webhook.url != "" {
		return nil, webhookActive()
	}
	if err := s.updates.allow(c); err != nil {
		return nil, err
	}
	s.confirm(c.number("offset"))
	ousted := make(chan struct{})
	s.updates.ousted = ousted
	return ousted, nil
}

// allow takes over the kinds that a call asks for; they stay until another call names some. An empty list is all kinds.
func (u *updates) allow(c *call) *apiError {
	if err := c.object("allowed_updates", &u.allowed); err != nil {
		return err
	}
	if len(u.allowed) == 0 {
		u.allowed = nil
	}
	return nil
}

func webhookActive() *apiError {
	return &apiError{
		code: http.StatusConflict,
		text: "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
	}
}

// future is how far an offset may lie behind the newest update. One beyond is no offset: the hosted server then begins
// with the oldest update, for ids begin anew after a week without any.
const future = 10

// confirm forgets all updates below offset; a negative one keeps that many of the newest.
func (s *Server) confirm(offset int64) {
	if n := len(s.updates.pending); n > 0 && offset > s.updates.pending[n-1].id+future {
		return
	}
	if offset < 0 {
		s.updates.pending = s.updates.pending[max(0, len(s.updates.pending)+int(offset)):]
		return
	}
	s.updates.pending = slices.DeleteFunc(s.updates.pending, func(p pending) bool { return p.id < offset })
}

func (s *Server) endPoll(ousted chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.updates.ousted == ousted {
		s.updates.ousted = nil
	}
}

func (s *Server) batch(limit int) ([]json.RawMessage, <-chan struct{}, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.updates.webhook.url != "" {
		return nil, nil, webhookActive()
	}
	if limit <= 0 || limit > maxUpdates {
		limit = maxUpdates
	}
	batch := []json.RawMessage{}
	for _, p := range s.updates.pending[:min(limit, len(s.updates.pending))] {
		batch = append(batch, p.raw)
	}
	return batch, s.updates.changed, nil
}
