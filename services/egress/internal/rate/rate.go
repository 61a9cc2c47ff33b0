// Package rate holds requests to the limits of platforms: each takes a token from every bucket of its target, and what a
// platform asks for closes a bucket for all processes.
package rate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
)

// MaxFreeze bounds what a platform may ask for.
const MaxFreeze = time.Hour

// timeout bounds a call: rates are kept for others, they must not hold up a request for long.
const timeout = 2 * time.Second

// Gate is where requests ask before they are made. It is safe for concurrent use.
type Gate struct {
	limits ratelimit.Limiter
	logger *slog.Logger
}

// NewGate returns a gate.
func NewGate(limits ratelimit.Limiter, logger *slog.Logger) *Gate {
	return &Gate{limits: limits, logger: logger}
}

// Wait takes what one request to target costs and returns 0, or takes nothing and returns the time to wait. Where rates
// cannot be read, a request goes: the platform refuses what is too much.
func (g *Gate) Wait(ctx context.Context, s channel.Sender, target event.Address) time.Duration {
	return g.take(ctx, target, limits(s, target))
}

// Spare is Wait for requests that nobody misses: it leaves the last token of a bucket to messages.
func (g *Gate) Spare(ctx context.Context, s channel.Sender, target event.Address) time.Duration {
	buckets := limits(s, target)
	for i := range buckets {
		buckets[i].Burst = max(buckets[i].Burst-1, 1)
	}
	return g.take(ctx, target, buckets)
}

// limits is a copy of what s says, nil if there are no limits.
func limits(s channel.Sender, target event.Address) []ratelimit.Bucket {
	l, ok := s.(channel.Limiter)
	if !ok {
		return nil
	}
	return slices.Clone(l.Limits(target))
}

func (g *Gate) take(ctx context.Context, target event.Address, buckets []ratelimit.Bucket) time.Duration {
	if len(buckets) == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	wait, err := g.limits.Take(ctx, group(target), buckets...)
	if err != nil {
		g.logger.WarnContext(ctx, "rate not read", "err", err)
		return 0
	}
	return wait
}

// Freeze closes the buckets that a failed request names, for as long as the platform asks. Other errors change nothing.
func (g *Gate) Freeze(ctx context.Context, s channel.Sender, target event.Address, err error) {
	e, ok := errors.AsType[*channel.SendError](err)
	if !ok || e.RetryAfter <= 0 {
		return
	}
	// Also of a request that the end of the process has cut.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	for _, key := range closed(s, target, e) {
		if err := g.limits.Freeze(ctx, group(target), key, min(e.RetryAfter, MaxFreeze)); err != nil {
			g.logger.WarnContext(ctx, "rate not frozen", "err", err) // the platform says so again
		}
	}
}

// closed are the keys of the buckets that e closes.
func closed(s channel.Sender, target event.Address, e *channel.SendError) []string {
	if e.Freezes != "" {
		return []string{e.Freezes}
	}
	var keys []string
	for _, b := range limits(s, target) {
		keys = append(keys, b.Key)
	}
	return keys
}

// group is the account: its buckets are taken from together.
func group(target event.Address) string { return target.Platform + ":" + target.Account }
