// Package stream publishes what a run says while it says it, as numbered frames, and answers clients that join late.
//
// Frames are hints: they may be lost, and the final text always comes from the outbox. They are published only while
// somebody looks: for sessions whose clients read their replies, and for 60 s after a request for a snapshot. One
// goroutine per worker answers snapshots and one sends the text that was held back; a run has none.
package stream

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

const (
	buffer = 1024
	// watched is how long a request for a snapshot keeps the frames coming.
	watched = 60 * time.Second
	// tick is how often held back text is looked at.
	tick = interval / 3
)

// Hub holds the streams of a worker. It is a daemon.Component; it must outlive the runs.
type Hub struct {
	bus      bus.Notifier
	logger   *slog.Logger
	requests chan bus.Msg
	// wake tells the flusher that held is not empty.
	wake  chan struct{}
	loops daemon.Loops

	mu      sync.Mutex
	streams map[string][]*Stream
	// held are streams with text that was too early to be sent.
	held []*Stream
}

// NewHub returns a hub.
func NewHub(b bus.Notifier, logger *slog.Logger) *Hub {
	return &Hub{
		bus: b, logger: logger, requests: make(chan bus.Msg, buffer), wake: make(chan struct{}, 1),
		streams: map[string][]*Stream{},
	}
}

// Start begins to answer and to send.
func (h *Hub) Start(ctx context.Context) error {
	h.loops.Go(ctx, h.answer)
	h.loops.Go(ctx, h.flush)
	return nil
}

// Stop ends both.
func (h *Hub) Stop(ctx context.Context) error { return h.loops.Stop(ctx) }

// Listen subscribes to the snapshot requests of a session.
func (h *Hub) Listen(skey string) (bus.Subscription, error) {
	sub, err := h.bus.Listen(bus.SnapshotSubject(skey), h.requests)
	if err != nil {
		return nil, fmt.Errorf("listen for snapshot requests: %w", err)
	}
	return sub, nil
}

// Open makes the stream of a run. Requests that come before [Stream.Begin] are answered by it.
func (h *Hub) Open(skey string, gen int64, runID string) *Stream {
	s := &Stream{hub: h, skey: skey, log: frameLog{gen: gen, runID: runID}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[skey] = append(h.streams[skey], s)
	return s
}

func (h *Hub) remove(s *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.streams[s.skey], func(o *Stream) bool { return o == s })
	if len(left) == 0 {
		delete(h.streams, s.skey)
		return
	}
	h.streams[s.skey] = left
}

// newest returns the stream of the highest generation: a session has two only while one is being replaced.
func (h *Hub) newest(skey string) *Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	var newest *Stream
	for _, s := range h.streams[skey] {
		if newest == nil || s.log.gen > newest.log.gen { // gen never changes
			newest = s
		}
	}
	return newest
}

func (h *Hub) answer(ctx context.Context) {
	for {
		select {
		case m := <-h.requests:
			if s := h.newest(bus.SKeyOf(m.Subject)); s != nil {
				s.request(ctx, m)
			}
		case <-ctx.Done():
			return
		}
	}
}

// hold has the flusher look at s.
func (h *Hub) hold(s *Stream) {
	h.mu.Lock()
	h.held = append(h.held, s)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default: // it is awake
	}
}

func (h *Hub) flush(ctx context.Context) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-h.wake:
		case <-ctx.Done():
			return
		}
		timer.Reset(tick)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		h.flushHeld(ctx)
	}
}

func (h *Hub) flushHeld(ctx context.Context) {
	h.mu.Lock()
	held := h.held
	h.held = nil
	h.mu.Unlock()
	for _, s := range held {
		s.flush(ctx)
	}
}

// publish sends a message that may be lost.
func (h *Hub) publish(ctx context.Context, subject string, m proto.Message) {
	data, err := proto.Marshal(m)
	if err == nil {
		err = h.bus.Notify(ctx, bus.Msg{Subject: subject, Data: data})
	}
	if err != nil {
		h.logger.DebugContext(ctx, "frame not sent", "err", err)
	}
}

// readRequest reads what a client has seen; a request that cannot be read asks for everything.
func readRequest(m bus.Msg) (gen, n int64) {
	var r runv1.SnapshotRequest
	if err := proto.Unmarshal(m.Data, &r); err != nil {
		return 0, 0
	}
	return r.GetGen(), r.GetN()
}
