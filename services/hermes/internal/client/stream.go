package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
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

	accepted Kind = "accepted"
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
	// EventsURL is set on accepted, which no caller sees.
	EventsURL string `json:"events_url"`
}

// errStreamCut: the connection ended before the run did.
var errStreamCut = fmt.Errorf("the stream of events ended early: %w", ErrUnreachable)

// asking is one message on its way to its answer.
type asking struct {
	*Client
	session, key string
	body         []byte
	handle       func(Event)
	// events is where the run can be followed, "" until the message is accepted; lastID the last event that was seen.
	events, lastID string
}

// connect sends the message, or resumes its run, and reads events until the last one. seen: there were some.
func (a *asking) connect(ctx context.Context) (seen bool, err error) {
	req, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := a.do(req)
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
		if event.Kind == accepted {
			a.events = event.EventsURL
			continue
		}
		if id != "" {
			a.lastID = id
		}
		a.handle(event)
		if event.Kind.Final() {
			return seen, nil
		}
	}
}

func (a *asking) open(ctx context.Context) (*http.Request, error) {
	if a.events == "" {
		req, err := a.request(ctx, http.MethodPost, "/v1/sessions/"+url.PathEscape(a.session)+"/messages", bytes.NewReader(a.body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", a.key)
		return req, nil
	}
	req, err := a.request(ctx, http.MethodGet, a.events, nil)
	if err != nil {
		return nil, err
	}
	if a.lastID != "" {
		req.Header.Set("Last-Event-ID", a.lastID)
	}
	return req, nil
}

// repeatable reports whether another try may help. An accepted message is not known to everybody until it is admitted.
func (a *asking) repeatable(err error) bool {
	if errors.Is(err, ErrUnreachable) {
		return true
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Status == http.StatusServiceUnavailable || e.Status == http.StatusNotFound && a.events != ""
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
