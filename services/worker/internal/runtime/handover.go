package runtime

import (
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
	cp, err := r.stepOf(agent.Step{Messages: soFar.Entries, Calls: soFar.Calls})
	if err != nil {
		return err
	}
	var gen int64
	err = r.write(func(fence store.Fence) (err error) {
		cp.Fence = fence
		gen, err = r.Committer.Handover(r.hold, cp)
		return err
	})
	if err != nil {
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
