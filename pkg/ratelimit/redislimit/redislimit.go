// Package redislimit shares rates through Redis. A call is one Lua script, so that several buckets are taken from
// together; time is the server's.
//
// Keys are rl:{group}:key: the buckets of a group are on one server of a cluster. They expire when they are full.
package redislimit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hermes-runtime/hermes/pkg/internal/redisclient"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
)

//go:embed take.lua
var takeSource string

//go:embed freeze.lua
var freezeSource string

// Config of the connection.
type Config struct {
	// URL is redis://host:port/db or rediss:// for TLS.
	URL string
	// Password replaces one in the URL if it is set.
	Password string
}

// Limiter implements ratelimit.Limiter.
type Limiter struct {
	client       *redis.Client
	take, freeze *redis.Script
}

var _ ratelimit.Limiter = (*Limiter)(nil)

// Open checks the configuration and does not wait for the server.
func Open(cfg Config) (*Limiter, error) { return open(cfg, redisclient.Timeout) }

func open(cfg Config, timeout time.Duration) (*Limiter, error) {
	client, err := redisclient.Open(redisclient.Config(cfg), timeout)
	if err != nil {
		return nil, err // says what it is about
	}
	return &Limiter{client: client, take: redis.NewScript(takeSource), freeze: redis.NewScript(freezeSource)}, nil
}

// Close disconnects. It is safe twice.
func (l *Limiter) Close() error {
	if err := l.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}

// Take implements ratelimit.Limiter.
func (l *Limiter) Take(ctx context.Context, group string, buckets ...ratelimit.Bucket) (time.Duration, error) {
	if len(buckets) == 0 {
		return 0, nil
	}
	keys := make([]string, len(buckets))
	args := make([]any, 0, 2*len(buckets))
	for i, b := range buckets {
		if err := b.Validate(); err != nil {
			return 0, err
		}
		keys[i] = key(group, b.Key)
		args = append(args, max(b.Interval().Microseconds(), 1), b.Burst)
	}
	wait, err := l.take.Run(ctx, l.client, keys, args...).Int64()
	if err != nil {
		return 0, unavailable("take tokens", err)
	}
	return time.Duration(wait) * time.Microsecond, nil
}

// Freeze implements ratelimit.Limiter.
func (l *Limiter) Freeze(ctx context.Context, group, name string, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return unavailable("freeze bucket", l.freeze.Run(ctx, l.client, []string{key(group, name)}, d.Microseconds()).Err())
}

func key(group, name string) string { return "rl:{" + group + "}:" + name }

// unavailable: whatever went wrong, nothing is known to be taken. Errors of the client never hold the password.
func unavailable(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", doing, ratelimit.ErrUnavailable, err)
}
