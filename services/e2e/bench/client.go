package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
)

const (
	turnTimeout = 30 * time.Second
	// turnsPerConversation is after how many turns a client begins a new conversation.
	turnsPerConversation = 20
)

// door is what clients have in common.
type door struct {
	url      string
	key      webhook.Key
	http     *http.Client
	receiver *receiver
}

func newDoor(addr string, clients int, r *receiver) (*door, error) {
	key, err := webhook.ParseKey(inSecret)
	if err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	return &door{
		url: "http://" + addr + "/v1/hooks/" + channelName, key: key, receiver: r,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}},
	}, nil
}

// turn is one that has ended.
type turn struct {
	// begun is the moment before the request was sent.
	begun time.Time
	// accepted is the time until the door had answered, whole until the reply had arrived.
	accepted, whole time.Duration
	err             error
}

// client talks in one conversation at a time and waits for each answer.
type client struct {
	*door
	name string
	n    int
}

// talk makes one turn after the other until ctx ends or one fails. The last one is finished.
func (c *client) talk(ctx context.Context, ended func(turn)) {
	for ctx.Err() == nil {
		t := c.turn(context.WithoutCancel(ctx))
		ended(t)
		if t.err != nil {
			return
		}
	}
}

func (c *client) turn(ctx context.Context) (t turn) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	c.n++
	id := fmt.Sprintf("%s-%d", c.name, c.n)
	conversation := fmt.Sprintf("%s-c%d", c.name, c.n/turnsPerConversation)
	text := "Good morning, this is message " + id
	answer := c.receiver.expect(conversation)
	t.begun = time.Now()
	if t.err = c.post(ctx, id, conversation, text); t.err != nil {
		c.receiver.forget(conversation)
		return t
	}
	t.accepted = time.Since(t.begun)
	select {
	case got := <-answer:
		t.whole = got.at.Sub(t.begun)
		if !strings.Contains(got.text, text+"\n") { // the demo model repeats what it was told
			t.err = errors.New("the reply answers another message")
		}
	case <-ctx.Done():
		c.receiver.forget(conversation)
		t.err = fmt.Errorf("no reply within %s", turnTimeout)
	}
	return t
}

// post sends a signed message and returns when the door has accepted it.
func (d *door) post(ctx context.Context, id, conversation, text string) error {
	body, err := json.Marshal(map[string]string{"conversation": conversation, "user": conversation, "text": text})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	d.key.SetHeaders(req.Header, id, time.Now(), body)
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // read to the end, so that the connection is used again
		return fmt.Errorf("read answer of the door: %w", err)
	}
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("send message: status %d", resp.StatusCode)
	}
	return nil
}
