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
	"github.com/hermes-runtime/hermes/services/api/internal/sse"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Handler serves runs.
type Handler struct {
	Deps
	acceptor Acceptor
	gate     *drain.Gate
}

// NewHandler returns a handler whose streams end with gate and whose stops are accepted by acceptor.
func NewHandler(d Deps, acceptor Acceptor, gate *drain.Gate) *Handler {
	return &Handler{Deps: d, acceptor: acceptor, gate: gate}
}

// Events streams the events of a run, from Last-Event-ID on.
func (h *Handler) Events(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := h.gate.Context(r.Context())
	defer cancel()
	target, err := h.awaitTarget(ctx, auth.From(ctx), r.PathValue("id"))
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
	out := sse.New(w, d.Timing.Write)
	out.Open()
	if r.Method == http.MethodHead {
		return
	}
	if err := d.stream(ctx, out, feed, accepted); err != nil { // the client went away or reads too slowly: it resumes by the last id
		d.Logger.DebugContext(ctx, "stream cut", "skey", feed.target.SKey, "err", err)
	}
}

func (d Deps) stream(ctx context.Context, out *sse.Writer, feed *Feed, accepted any) error {
	if accepted != nil {
		raw, err := json.Marshal(accepted)
		if err != nil {
			return fmt.Errorf("encode event accepted: %w", err)
		}
		if err := out.Write(fmt.Appendf(nil, "event: accepted\ndata: %s\n\n", raw)); err != nil {
			return err
		}
	}
	return d.Pump(ctx, feed, out.Ping, func(e Event) error {
		raw, err := encode(e)
		if err != nil {
			return err
		}
		return out.Write(raw)
	})
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

// Pump calls each for every event of feed in order, and ping now and then, until the final event: then it returns nil.
// Otherwise it returns the error of each or ping, or the cause of the end of ctx. A client that is slow to take an event
// holds up the next, not the feed.
func (d Deps) Pump(ctx context.Context, feed *Feed, ping func() error, each func(Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	events, ended := make(chan Event, eventBuffer), make(chan error, 1)
	following.Go(func() {
		defer close(events)
		ended <- feed.Run(ctx, func(e Event) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	ticker := time.NewTicker(d.Timing.Ping)
	defer ticker.Stop()
	for {
		var err error
		select {
		case e, open := <-events:
			if !open {
				return <-ended
			}
			err = each(e)
		case <-ticker.C:
			err = ping()
		}
		if err != nil {
			return err
		}
	}
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
