package hooks

import (
	"context"
	"fmt"

	"github.com/cenkalti/backoff/v5"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
)

// notifier sends messages that are not stored.
type notifier interface {
	Notify(ctx context.Context, m bus.Msg) error
}

// subject publishes events under <name>.<type>. Whoever wants them kept has a stream on the subject: their id is the
// message id, so that it drops repetitions.
type subject struct {
	name    string
	bus     notifier
	content bool
}

// Observe implements hook.Observer.
func (s subject) Observe(ctx context.Context, ev *event.Lifecycle) error {
	body, err := encode(ev, s.content)
	if err != nil {
		return backoff.Permanent(err)
	}
	if err := s.bus.Notify(ctx, bus.Msg{Subject: s.name + "." + string(ev.Type), ID: hook.EventID(ev), Data: body}); err != nil {
		return fmt.Errorf("publish event: %w", err)
	}
	return nil
}
