package redislease

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/hermes-runtime/hermes/pkg/lease"
)

// HoldPreview implements lease.Previews.
func (l *Leases) HoldPreview(ctx context.Context, skey, egressID string) (bool, error) {
	answers, err := l.runAll(ctx, l.scripts.own, []call{{previewKey(skey), []any{egressID, lease.PreviewTTL.Milliseconds()}}})
	if err != nil {
		return false, unavailable("hold preview", err)
	}
	return answers[0] == int64(1), nil
}

// PreviewHolder implements lease.Previews.
func (l *Leases) PreviewHolder(ctx context.Context, skey string) (string, error) {
	holder, err := l.client.Get(ctx, previewKey(skey)).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return holder, unavailable("look preview up", err)
}

// DropPreview implements lease.Previews.
func (l *Leases) DropPreview(ctx context.Context, skey, egressID string) error {
	_, err := l.runAll(ctx, l.scripts.release, []call{{previewKey(skey), []any{egressID}}})
	return unavailable("drop preview", err)
}
