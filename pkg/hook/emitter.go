// Package hook carries lifecycle events from the engine to whoever observes it.
package hook

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// Emitter publishes lifecycle events off the path of the work: Emit never blocks and never fails. Events are lost when
// the buffer is full or the broker is down, and counted; messages never depend on them.
type Emitter struct {
	bus     bus.Publisher
	logger  *slog.Logger
	queue   chan event.Lifecycle
	loops   daemon.Loops
	dropped atomic.Int64
}

const (
	emitterBuffer = 8192
	emitterBatch  = 256
	publishWait   = 5 * time.Second
	// linger lets the events of a few steps go together: nobody waits for them.
	linger = 5 * time.Millisecond
)

// NewEmitter returns an emitter that publishes to EVT once it is started.
func NewEmitter(b bus.Publisher, logger *slog.Logger) *Emitter {
	return &Emitter{bus: b, logger: logger, queue: make(chan event.Lifecycle, emitterBuffer)}
}

// Start begins to publish.
func (e *Emitter) Start(ctx context.Context) error {
	e.loops.Go(ctx, e.run)
	return nil
}

// Stop publishes what is buffered and ends.
func (e *Emitter) Stop(ctx context.Context) error { return e.loops.Stop(ctx) }

// Emit queues an event. Events of one emitter keep their order.
func (e *Emitter) Emit(ev event.Lifecycle) {
	if ev.At.IsZero() {
		ev.At = time.Now()
	}
	select {
	case e.queue <- ev:
	default:
		e.dropped.Add(1)
	}
}

// Dropped counts the events that were lost in this process.
func (e *Emitter) Dropped() int64 { return e.dropped.Load() }

func (e *Emitter) run(ctx context.Context) {
	for {
		select {
		case ev := <-e.queue:
			daemon.Sleep(ctx, linger)
			e.publish(ctx, e.collect(ev))
		case <-ctx.Done():
			e.drain(context.WithoutCancel(ctx)) // what was emitted before the stop is still published
			return
		}
	}
}

func (e *Emitter) drain(ctx context.Context) {
	for {
		select {
		case ev := <-e.queue:
			e.publish(ctx, e.collect(ev))
		default:
			return
		}
	}
}

// collect takes what queued up, without waiting.
func (e *Emitter) collect(first event.Lifecycle) []event.Lifecycle {
	batch := []event.Lifecycle{first}
	for len(batch) < emitterBatch {
		select {
		case ev := <-e.queue:
			batch = append(batch, ev)
		default:
			return batch
		}
	}
	return batch
}

func (e *Emitter) publish(ctx context.Context, batch []event.Lifecycle) {
	msgs := make([]bus.Msg, 0, len(batch))
	for i := range batch {
		data, err := event.EncodeLifecycle(&batch[i])
		if err != nil {
			e.lost(ctx, 1, err)
			continue
		}
		msgs = append(msgs, bus.Msg{
			Subject: bus.EventSubject(batch[i].SKey, string(batch[i].Type)),
			ID:      messageID(&batch[i]),
			Data:    data,
			Lazy:    true, // they all go to EVT: its answer to the last one is enough
		})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishWait)
	defer cancel()
	lost, last := int64(0), error(nil)
	for _, err := range e.bus.PublishAll(ctx, msgs) {
		if err != nil {
			lost, last = lost+1, err
		}
	}
	if lost > 0 {
		e.lost(ctx, lost, last)
	}
}

func (e *Emitter) lost(ctx context.Context, n int64, err error) {
	e.dropped.Add(n)
	e.logger.WarnContext(ctx, "lifecycle events lost", "count", n, "err", err)
}

// messageID makes a repeated event fall into the stream's duplicate window.
func messageID(ev *event.Lifecycle) string {
	switch {
	case ev.RunID != "" && ev.OutSeq == 0:
		return fmt.Sprintf("%s:%d:%s:%d", ev.RunID, ev.Gen, ev.Type, ev.N)
	case ev.OutSeq != 0:
		return fmt.Sprintf("%s:%d:%s", ev.SKey, ev.OutSeq, ev.Type)
	default:
		return fmt.Sprintf("%s:%s", ev.MsgUID, ev.Type)
	}
}
