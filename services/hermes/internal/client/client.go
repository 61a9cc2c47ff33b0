// Package client speaks the HTTP API of Hermes: send a message, follow its run.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ErrUnreachable: no Hermes answered at the base URL.
var ErrUnreachable = errors.New("not reachable")

// Client talks to one API. It is safe for concurrent use.
type Client struct {
	base string
	key  string
	http *http.Client
}

// New returns a client for the API at base; key is a bearer key, "" on a loopback server without keys.
func New(base, key string) *Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: 30 * time.Second}
	return &Client{base: strings.TrimRight(base, "/"), key: key, http: &http.Client{Transport: transport}}
}

// Error is an answer of the API that says no.
type Error struct {
	Status  int
	Message string
	Param   string
}

func (e *Error) Error() string {
	if e.Param != "" {
		return fmt.Sprintf("%s: %s (%d)", e.Param, e.Message, e.Status)
	}
	return fmt.Sprintf("%s (%d)", e.Message, e.Status)
}

// Accepted is a message that will be answered.
type Accepted struct {
	MessageID string `json:"message_id"`
	EventsURL string `json:"events_url"`
	Duplicate bool   `json:"duplicate"`
}

// Send hands text over to a session. It is repeated under one idempotency key until the server says that the message
// is accepted or refused, or ctx ends: the message is then accepted once.
func (c *Client) Send(ctx context.Context, session, text string) (Accepted, error) {
	key := uuid.NewString()
	var accepted Accepted
	err := c.retry(ctx, func() error { return c.send(ctx, session, key, text, &accepted) })
	return accepted, err
}

const (
	sendAttempts = 3
	retryPause   = 500 * time.Millisecond
)

// retry repeats call while the outcome is unknown or the server is busy.
func (c *Client) retry(ctx context.Context, call func() error) error {
	var err error
	for range sendAttempts {
		if err = call(); err == nil || !temporary(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
	return err
}

func temporary(err error) bool {
	var e *Error
	return errors.Is(err, ErrUnreachable) || errors.As(err, &e) && e.Status == http.StatusServiceUnavailable
}

func (c *Client) send(ctx context.Context, session, key, text string, accepted *Accepted) error {
	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	req, err := c.request(ctx, http.MethodPost, "/v1/sessions/"+url.PathEscape(session)+"/messages", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(accepted); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", c.base, err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return req, nil
}

// do returns a response with a 2xx status; its body is open.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("%s: %w: %w", c.base, ErrUnreachable, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readError(resp)
}

const maxErrorBody = 64 << 10

func readError(resp *http.Response) error {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Param   string `json:"param"`
		} `json:"error"`
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil || json.Unmarshal(raw, &body) != nil || body.Error.Message == "" {
		return &Error{Status: resp.StatusCode, Message: http.StatusText(resp.StatusCode)}
	}
	return &Error{Status: resp.StatusCode, Message: body.Error.Message, Param: body.Error.Param}
}
