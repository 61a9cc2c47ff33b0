package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Kind names an event of a run.
type Kind string

// The events of a run. Done, Failed and Cancelled are the last and carry the whole text.
const (
	RunStarted   Kind = "run_started"
	Text         Kind = "text"
	Step         Kind = "step"
	ToolStarted  Kind = "tool_started"
	ToolProgress Kind = "tool_progress"
	ToolFinished Kind = "tool_finished"
	Reset        Kind = "reset"
	Done         Kind = "done"
	Failed       Kind = "failed"
	Cancelled    Kind = "cancelled"
)

// Final reports whether nothing follows.
func (k Kind) Final() bool { return k == Done || k == Failed || k == Cancelled }

// Event is one event of a run.
type Event struct {
	Kind    Kind   `json:"-"`
	RunID   string `json:"run_id"`
	Text    string `json:"text"`
	Tool    string `json:"tool"`
	CallID  string `json:"call_id"`
	Outcome string `json:"outcome"`
}

// errStreamCut: the connection ended before the run did.
var errStreamCut = errors.New("stream cut")

// Follow calls handle for each event of the run at path (Accepted.EventsURL), in order, until the run has ended. It
// connects again after a cut and goes on behind the last event that it has seen.
func (c *Client) Follow(ctx context.Context, path string, handle func(Event)) error {
	lastID := ""
	for failures := 0; failures < sendAttempts; {
		seen, err := c.follow(ctx, path, &lastID, handle)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, errStreamCut) && !temporary(err):
			return err
		case seen:
			failures = 0
		default:
			failures++
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
	return fmt.Errorf("%s: %w: the stream of events does not stay open", c.base, ErrUnreachable)
}

// follow reads one connection; seen says whether it brought any event.
func (c *Client) follow(ctx context.Context, path string, lastID *string, handle func(Event)) (seen bool, err error) {
	req, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if *lastID != "" {
		req.Header.Set("Last-Event-ID", *lastID)
	}
	resp, err := c.do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	events := newReader(resp.Body)
	for {
		id, event, err := events.next()
		if err != nil {
			return seen, err
		}
		seen = true
		if id != "" {
			*lastID = id
		}
		handle(event)
		if event.Kind.Final() {
			return seen, nil
		}
	}
}

// reader parses server-sent events.
type reader struct{ lines *bufio.Reader }

func newReader(r io.Reader) *reader { return &reader{lines: bufio.NewReader(r)} }

// next returns the next event that has a name and data.
func (r *reader) next() (id string, event Event, err error) {
	var name, data string
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return "", Event{}, errors.Join(errStreamCut, err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" && data != "" {
			event, err := parse(name, data)
			return id, event, err
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field { // a line that begins with a colon is a comment
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data += value
		}
	}
}

func parse(name, data string) (Event, error) {
	var event Event
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		return Event{}, fmt.Errorf("event %s: %w", name, err)
	}
	event.Kind = Kind(name)
	return event, nil
}
