package poll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// errLost: another replica owns the feed now, or may.
var errLost = errors.New("poll: ownership lost")

// state is the value of the key.
type state struct {
	// Owner is "" if nobody polls.
	Owner string `json:"owner"`
	// Offset is the first update that is not accepted yet.
	Offset int64 `json:"offset"`
	// Beat makes every value a new one.
	Beat int64 `json:"beat"`
}

// cursor is the key in the hands of its owner. Safe for concurrent use.
type cursor struct {
	kv     bus.KV
	key    string
	timing Timing

	mu       sync.Mutex
	state    state
	revision uint64
	// certain is until when nobody else takes the key over.
	certain time.Time
}

func (c *cursor) offset() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Offset
}

func (c *cursor) certainUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.certain
}

func (c *cursor) renew(ctx context.Context) error { return c.write(ctx, func(*state) {}) }

func (c *cursor) advance(ctx context.Context, offset int64) error {
	return c.write(ctx, func(s *state) { s.Offset = offset })
}

// release lets the next replica take the key at once.
func (c *cursor) release(ctx context.Context) error {
	return c.write(ctx, func(s *state) { s.Owner = "" })
}

// write changes the value, if the key is still ours. Errors: errLost, or that of the broker; then the outcome is unknown
// and the next write finds out.
func (c *cursor) write(ctx context.Context, change func(*state)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, earlier(began.Add(c.timing.Write), c.certain))
	defer cancel()
	err := c.put(ctx, began, change)
	if errors.Is(err, bus.ErrConflict) {
		if err = c.adopt(ctx); err == nil {
			err = c.put(ctx, began, change)
		}
	}
	switch {
	case errors.Is(err, bus.ErrConflict):
		return errLost
	case err != nil && !errors.Is(err, errLost):
		return fmt.Errorf("write cursor %s: %w", c.key, err)
	default:
		return err
	}
}

func (c *cursor) put(ctx context.Context, began time.Time, change func(*state)) error {
	next := c.state
	change(&next)
	next.Beat++
	revision, err := put(ctx, c.kv, c.key, next, c.revision)
	if err != nil {
		return err
	}
	c.state, c.revision, c.certain = next, revision, began.Add(c.timing.Expire-c.timing.Margin)
	return nil
}

// adopt takes over the value that an earlier write of ours left behind, whose outcome we did not learn.
func (c *cursor) adopt(ctx context.Context) error {
	stored, revision, err := get(ctx, c.kv, c.key)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return errLost // the broker has forgotten everything
	case err != nil:
		return err
	case stored.Owner != c.state.Owner:
		return errLost
	}
	c.state, c.revision = stored, revision
	return nil
}

func put(ctx context.Context, kv bus.KV, key string, s state, revision uint64) (uint64, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return 0, fmt.Errorf("encode cursor: %w", err)
	}
	return kv.Put(ctx, key, raw, revision)
}

func get(ctx context.Context, kv bus.KV, key string) (state, uint64, error) {
	raw, revision, err := kv.Get(ctx, key)
	if err != nil {
		return state{}, 0, err
	}
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return state{}, 0, fmt.Errorf("decode cursor %s: %w", key, err)
	}
	return s, revision, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
