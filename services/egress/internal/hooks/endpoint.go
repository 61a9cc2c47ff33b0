package hooks

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
)

// maxRetryAfter bounds what an endpoint may ask for.
const maxRetryAfter = 5 * time.Minute

// endpoint posts events to a URL, signed.
type endpoint struct {
	cfg     config.Hook
	poster  *webhook.Poster
	content bool
}

// Observe implements hook.Observer. What the endpoint refuses for good is not repeated.
func (e endpoint) Observe(ctx context.Context, ev *event.Lifecycle) error {
	body, err := encode(ev, e.content)
	if err != nil {
		return backoff.Permanent(err)
	}
	err = e.poster.Post(ctx, webhook.Post{
		URL: e.cfg.URL, Secret: e.cfg.Secret, AllowPrivate: e.cfg.AllowPrivate, ID: hook.EventID(ev), Body: body,
	})
	refused, ok := errors.AsType[*channel.SendError](err)
	switch {
	case !ok:
		return err // nil, or the context's
	case refused.Class == channel.Permanent:
		return backoff.Permanent(err)
	case refused.RetryAfter > 0:
		return backoff.RetryAfter(int(min(refused.RetryAfter, maxRetryAfter).Seconds()))
	default:
		return err
	}
}
