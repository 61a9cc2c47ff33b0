package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// puller asks a consumer for messages, one request at a time, all answered on one subscription: the library subscribes and
// unsubscribes for each. One goroutine uses it at a time.
type puller struct {
	bus  *Bus
	next string
	sub  *nats.Subscription
}

// pullRequest is the body of a request for messages.
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires,omitempty"`
	NoWait  bool          `json:"no_wait,omitempty"`
	// Heartbeat asks for signs of life while there is nothing to send.
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
}

// pull sends a request and collects its answer. No error: the answer is complete, and nothing more comes.
func (p *puller) pull(ctx context.Context, req pullRequest) ([]bus.Work, error) {
	// A request does not survive its connection, and the broker answers it in the end.
	ctx, stop := p.bus.whileConnected(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, req.Expires+p.bus.timing.call)
	defer cancel()
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if err := p.bus.nc.PublishRequest(p.next, p.sub.Subject, body); err != nil {
		return nil, err
	}
	var work []bus.Work
	for len(work) < req.Batch {
		m, err := p.sub.NextMsgWithContext(ctx)
		if err != nil {
			return work, errors.Join(context.Cause(ctx), err)
		}
		switch status := statusOf(m); status {
		case "":
			work = append(work, newWork(p.bus, m))
		case "404", "408": // no more messages, or none in time
			return work, nil
		default:
			return work, fmt.Errorf("%w: %s %s", bus.ErrUnavailable, status, strings.ToLower(m.Header.Get("Description")))
		}
	}
	return work, nil
}

// statusOf returns the status that the broker sends instead of a message, or "".
func statusOf(m *nats.Msg) string {
	if len(m.Data) > 0 {
		return ""
	}
	return m.Header.Get("Status")
}
