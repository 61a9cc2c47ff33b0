// Package client speaks the HTTP API of Hermes: send a message, follow its run.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	if e.Param != "" && !strings.HasPrefix(e.Message, e.Param+":") {
		return fmt.Sprintf("%s: %s (%d)", e.Param, e.Message, e.Status)
	}
	return fmt.Sprintf("%s (%d)", e.Message, e.Status)
}

const (
	attempts   = 3
	retryPause = 500 * time.Millisecond
)

// Ask hands text over to a session and calls handle for each event of its run, in order, until the run has ended.
//
// The message is repeated under one idempotency key until the server says that it is accepted or refused: it is accepted
// once. A stream that is cut is connected again and goes on behind the last event.
func (c *Client) Ask(ctx context.Context, session, text string, handle func(Event)) error {
	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	a := asking{Client: c, session: session, key: uuid.NewString(), body: body, handle: handle}
	for failures := 0; failures < attempts; {
		seen, err := a.connect(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !a.repeatable(err):
			return err
		case seen:
			failures = 0
		default:
			failures++
			if failures == attempts {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryPause):
		}
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
