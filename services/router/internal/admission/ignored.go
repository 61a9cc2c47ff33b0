package admission

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// reason says why a message has no effect and gets no row; "" if it has. Only the offset moves.
type reason string

const (
	ignoredKnown     reason = "known"     // an album of which everything was admitted
	ignoredUnknown   reason = "unknown"   // an edit of a message that was never admitted
	ignoredKind      reason = "kind"      // an edit of something that is no message to the agent
	ignoredOld       reason = "old"       // an edit that a newer one overtook
	ignoredUnchanged reason = "unchanged" // an edit that leaves the text as it is
	ignoredLate      reason = "late"      // an edit of a message whose run has ended
	ignoredLarge     reason = "large"     // an edit whose text is too large for the bus
	ignoredRefused   reason = "refused"   // an edit by somebody who may not write here
)

// ignore tells of a message without effect.
func (a *Admitter) ignore(ctx context.Context, c *candidate, why reason) {
	a.metrics.ignored.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", string(why))))
	a.Logger.DebugContext(ctx, "message ignored", "skey", c.event.SKey, "msg_uid", c.event.UID, "reason", string(why))
	ev := c.lifecycle(event.MessageIgnored)
	ev.Outcome = string(why)
	a.Events.Emit(ev)
	c.end(nil)
}
