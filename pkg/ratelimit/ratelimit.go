// Package ratelimit is the port to rates that all processes share: token buckets that one call takes from together, and
// that a platform's answer can close for a time.
//
// redislimit shares them through Redis, [Local] keeps them in the process; [Fallback] joins both: where Redis does not
// answer, a process goes on by itself. ratelimittest is the suite that all of them pass. All methods are safe for
// concurrent use.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable: Redis did not answer; nothing was taken.
var ErrUnavailable = errors.New("rate limit: redis unavailable")

// Bucket holds up to Burst tokens and gains Rate of them per second. It is full at first.
type Bucket struct {
	// Key identifies the bucket within its group.
	Key   string
	Rate  float64
	Burst int
}

// Interval is the time in which the bucket gains a token.
func (b Bucket) Interval() time.Duration { return time.Duration(float64(time.Second) / b.Rate) }

// Validate refuses a bucket that would never have a token.
func (b Bucket) Validate() error {
	if b.Rate <= 0 || b.Burst < 1 {
		return fmt.Errorf("rate limit: bucket %s: rate %v and burst %d must be positive", b.Key, b.Rate, b.Burst)
	}
	return nil
}

// Limiter takes tokens.
type Limiter interface {
	// Take takes one token from each bucket, or none from any: then wait is the time after which it may succeed. Buckets of
	// one call belong to one group (an account, a tenant), which keeps them on one server, and differ in their keys. An
	// error took nothing: ErrUnavailable, or that of a bucket which is not valid.
	Take(ctx context.Context, group string, buckets ...Bucket) (wait time.Duration, err error)
	// Freeze closes a bucket for d: nobody takes from it. A freeze that ends later stands.
	Freeze(ctx context.Context, group, key string, d time.Duration) error
}
