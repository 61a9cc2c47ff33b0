package runapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Handler serves runs.
type Handler struct {
	Deps
	gate *drain.Gate
}

// NewHandler returns a handler whose streams end with gate.
func NewHandler(d Deps, gate *drain.Gate) *Handler { return &Handler{Deps: d, gate: gate} }

// Events streams the events of a run, from Last-Event-ID on.
func (h *Handler) Events(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := h.gate.Context(r.Context())
	defer cancel()
	target, err := h.awaitTarget(ctx, auth.From(ctx).Tenant, r.PathValue("id"))
	if errors.Is(err, drain.ErrStopping) {
		return httpapi.Unavailable("stopping", "the service is stopping, connect again")
	}
	if err != nil {
		return err
	}
	feed := h.Open(ctx, target, lastEvent(r))
	defer feed.Close()
	h.Stream(ctx, w, r, feed, nil)
	return nil
}

// Stream answers with the events of feed. accepted, if not nil, is the data of an event "accepted" before them.
func (d Deps) Stream(ctx context.Context, w http.ResponseWriter, r *http.Request, feed *Feed, accepted any) {
	s := &stream{w: w, control: http.NewResponseController(w), timing: d.Timing}
	s.open()
	if r.Method == http.MethodHead {
		return
	}
	if err := s.serve(ctx, feed, accepted); err != nil { // the client went away or reads too slowly: it resumes by the last id
		d.Logger.DebugContext(ctx, "stream cut", "skey", feed.target.SKey, "err", err)
	}
}

// lastEvent is the place that the client has reached; nil if it has nothing.
func lastEvent(r *http.Request) *Position {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		return nil
	}
	p := ParsePosition(id)
	return &p
}

// eventBuffer is how many events wait for a client that reads slowly.
const eventBuffer = 64

// stream is an open response of server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timing  Timing
}

// open sends the headers. The server's deadline for reading a request ends with the request and does not matter here.
func (s *stream) open() {
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	_ = s.control.Flush() // the next write fails too
}

// serve writes the events of feed, and pings, until the final event or the end of ctx.
func (s *stream) serve(ctx context.Context, feed *Feed, accepted any) error {
	if err := s.accepted(accepted); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	events := make(chan Event, eventBuffer)
	following.Go(func() {
		defer close(events)
		_ = feed.Run(ctx, func(e Event) error { // its end is that of ctx, or that of the run
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	ping := time.NewTicker(s.timing.Ping)
	defer ping.Stop()
	for {
		var raw []byte
		select {
		case e, open := <-events:
			if !open {
				return nil
			}
			var err error
			if raw, err = encode(e); err != nil {
				return err
			}
		case <-ping.C:
			raw = []byte(": ping\n\n")
		}
		if err := s.write(raw); err != nil {
			return err
		}
	}
}

func (s *stream) accepted(data any) error {
	if data == nil {
		return nil
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event accepted: %w", err)
	}
	return s.write(fmt.Appendf(nil, "event: accepted\ndata: %s\n\n", raw))
}

func encode(e Event) ([]byte, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.Kind, err)
	}
	var raw []byte
	if e.At != (Position{}) {
		raw = fmt.Appendf(raw, "id: %s\n", e.At)
	}
	return fmt.Appendf(raw, "event: %s\ndata: %s\n\n", e.Kind, data), nil
}

// write sends raw at once, or fails if the client does not take it in time.
func (s *stream) write(raw []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.timing.Write)); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if _, err := s.w.Write(raw); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}
