package agentcache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Options bound the cache.
type Options struct {
	// Capacity is how many agents are kept. Agents in use count, and may exceed it.
	Capacity int
	// Idle is how long an agent is kept that nobody uses.
	Idle time.Duration
}

// DefaultOptions are 128 agents and an hour.
func DefaultOptions() Options { return Options{Capacity: 128, Idle: time.Hour} }

// Key says whose agent it is.
type Key struct {
	Profile string
	// Session is the skey of the conversation, or whatever else agents are not shared across.
	Session string
}

// Cache holds agents of type V, one per key.
type Cache[V any] struct {
	opts    Options
	discard func(V)

	mu      sync.Mutex
	entries map[Key]*entry[V]
	// idle holds the entries that nobody uses, the one used last in front.
	idle   *list.List
	expiry *time.Timer
	closed bool
}

// entry is an agent that is built, or being built until ready is closed.
type entry[V any] struct {
	key       Key
	signature Signature
	ready     chan struct{}
	value     V
	err       error

	// users counts who has acquired it or waits for it. While it is 0, element is its place in the list of idle ones.
	users   int
	element *list.Element
	since   time.Time
	// replaced: it is no longer found, and goes when its last user does.
	replaced bool
}

// New returns an empty cache. discard closes an agent that the cache has dropped and that nobody uses any more; nil does
// nothing.
func New[V any](opts Options, discard func(V)) *Cache[V] {
	if discard == nil {
		discard = func(V) {}
	}
	c := &Cache[V]{opts: opts, discard: discard, entries: map[Key]*entry[V]{}, idle: list.New()}
	c.expiry = time.AfterFunc(opts.Idle, c.expire)
	c.expiry.Stop()
	return c
}

// Lease is an agent in use. Release it when the turn is over.
type Lease[V any] struct {
	// Value is the agent. It may be shared with other leases of the same key and signature.
	Value V
	// Reused tells that it was not built for this lease.
	Reused bool

	release func()
}

// Release gives the agent back; further calls do nothing.
func (l Lease[V]) Release() { l.release() }

// ErrClosed is returned after Close.
var ErrClosed = errors.New("agent cache is closed")

// Acquire returns the agent of a key if it has this signature, and builds it otherwise. Callers that ask for the same
// agent at the same time share one build, with the context of the first of them; they try themselves if it fails only
// because that context has ended. Errors of build are returned and nothing is kept.
func (c *Cache[V]) Acquire(ctx context.Context, key Key, s Signature, build func(context.Context) (V, error)) (Lease[V], error) {
	for {
		e, first, err := c.enter(key, s)
		if err != nil {
			return Lease[V]{}, err
		}
		if first {
			c.build(ctx, e, build)
		}
		err = e.await(ctx)
		if err == nil {
			return Lease[V]{Value: e.value, Reused: !first, release: sync.OnceFunc(func() { c.leave(e) })}, nil
		}
		c.leave(e)
		if first || ctx.Err() != nil || !errors.Is(err, errAbandoned) {
			return Lease[V]{}, err
		}
	}
}

// enter finds the entry, or makes one that the caller has to build. The caller is one of its users.
func (c *Cache[V]) enter(key Key, s Signature) (e *entry[V], first bool, err error) {
	var dropped []V
	defer func() { c.discardAll(dropped) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, ErrClosed
	}
	if old := c.entries[key]; old != nil {
		if old.signature == s {
			c.use(old)
			return old, false, nil
		}
		dropped = c.drop(old, dropped)
	}
	e = &entry[V]{key: key, signature: s, ready: make(chan struct{}), users: 1}
	c.entries[key] = e
	dropped = c.shrink(dropped)
	return e, true, nil
}

func (c *Cache[V]) use(e *entry[V]) {
	e.users++
	if e.element != nil {
		c.idle.Remove(e.element)
		e.element = nil
	}
}

// errAbandoned marks builds that failed because their builder's context had ended.
var errAbandoned = errors.New("build was abandoned")

func (c *Cache[V]) build(ctx context.Context, e *entry[V], build func(context.Context) (V, error)) {
	e.err = errors.New("building the agent panicked") // unless it returns
	defer func() {
		if e.err != nil {
			c.forget(e)
		}
		close(e.ready)
	}()
	value, err := build(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errAbandoned, err)
	}
	e.value, e.err = value, err
}

func (e *entry[V]) await(ctx context.Context) error {
	select {
	case <-e.ready:
		return e.err
	default:
	}
	select {
	case <-e.ready:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forget drops an entry that could not be built.
func (c *Cache[V]) forget(e *entry[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(e)
}

// leave ends a use.
func (c *Cache[V]) leave(e *entry[V]) {
	var dropped []V
	defer func() { c.discardAll(dropped) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	switch {
	case e.users > 0:
	case e.replaced:
		dropped = e.last(dropped)
	default:
		e.since = time.Now()
		e.element = c.idle.PushFront(e)
		dropped = c.shrink(dropped)
		c.arm()
	}
}

// last is called once nobody uses an entry that is no longer found.
func (e *entry[V]) last(dropped []V) []V {
	if e.err != nil {
		return dropped
	}
	return append(dropped, e.value)
}

// remove makes an entry unfindable.
func (c *Cache[V]) remove(e *entry[V]) {
	if c.entries[e.key] == e {
		delete(c.entries, e.key)
	}
	if e.element != nil {
		c.idle.Remove(e.element)
		e.element = nil
	}
	e.replaced = true
}

// drop removes an entry and adds its value to those to be discarded, unless somebody uses it.
func (c *Cache[V]) drop(e *entry[V], dropped []V) []V {
	c.remove(e)
	if e.users > 0 {
		return dropped
	}
	return e.last(dropped)
}

// shrink drops idle entries, the one used longest ago first, until the cache is within its capacity.
func (c *Cache[V]) shrink(dropped []V) []V {
	for len(c.entries) > c.opts.Capacity && c.idle.Len() > 0 {
		dropped = c.drop(c.oldest(), dropped)
	}
	return dropped
}

func (c *Cache[V]) oldest() *entry[V] { return c.idle.Back().Value.(*entry[V]) }

// arm sets the timer for the entry that has been idle the longest.
func (c *Cache[V]) arm() {
	if c.idle.Len() > 0 && !c.closed {
		c.expiry.Reset(time.Until(c.oldest().since.Add(c.opts.Idle)))
	}
}

// expire drops what has been idle for too long.
func (c *Cache[V]) expire() {
	var dropped []V
	defer func() { c.discardAll(dropped) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.idle.Len() > 0 && time.Since(c.oldest().since) >= c.opts.Idle {
		dropped = c.drop(c.oldest(), dropped)
	}
	c.arm()
}

// Len returns how many agents are kept, in use or not.
func (c *Cache[V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// Close drops all agents; those in use are discarded as they are released.
func (c *Cache[V]) Close() {
	var dropped []V
	defer func() { c.discardAll(dropped) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.expiry.Stop()
	for _, e := range c.entries {
		dropped = c.drop(e, dropped)
	}
}

// discardAll runs without the lock: closing an agent may take time.
func (c *Cache[V]) discardAll(dropped []V) {
	for _, v := range dropped {
		c.discard(v)
	}
}
