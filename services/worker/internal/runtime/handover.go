package runtime

import (
	"errors"
	"time"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
)

const outcomeHandedOver = "handed_over"

// handOver stores what the run has done so far and gives it back, so that another worker goes on with it. The stream
// ends in silence: that of the next attempt has a higher generation and starts over.
func (r *run) handOver(soFar agent.Result) error {
	messages, errMessages := r.rowsOf(soFar.Entries)
	calls, errCalls := ledgerOf(soFar.Calls)
	if err := errors.Join(errMessages, errCalls, r.lost()); err != nil {
		return err
	}
	gen, err := r.Committer.Handover(r.hold, store.Checkpoint{
		Fence: r.Fence, RunGen: r.FirstGen, Messages: messages, ToolCalls: calls,
	})
	if err = r.written(err); err != nil {
		return err
	}
	r.next = slot.Ended{NextRun: r.RunID, NextGen: gen, Traceparent: r.traceparent(), HandedOver: true}
	r.events.emit(event.Lifecycle{Type: event.RunHandedOver, Duration: time.Since(r.started)})
	return nil
}

// traceparent is that of the first message.
func (r *run) traceparent() string {
	if len(r.Prompt) == 0 {
		return ""
	}
	return r.Prompt[0].Traceparent
}
