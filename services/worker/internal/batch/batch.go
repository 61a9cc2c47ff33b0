// Package batch groups the store calls of many goroutines: what queued up during one round trip goes with the next one.
// Nobody waits for company, so an idle worker is as fast as a single call and a busy one shares its transactions.
package batch

import (
	"context"
	"errors"
	"time"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// ErrStopped: the loop that served the queue has ended.
var ErrStopped = errors.New("batch: stopped")

const (
	callTimeout = 10 * time.Second
	firstWait   = 20 * time.Millisecond
	longestWait = 500 * time.Millisecond
)

// Send runs one batch. On success result[i] belongs to items[i].
type Send[T, R any] func(ctx context.Context, items []T) ([]R, error)

// Queue takes items from any number of goroutines. A loop that owns it receives from [Queue.Ready] and calls
// [Queue.Flush]; one loop may own several queues, whose batches then never overlap.
type Queue[T, R any] struct {
	limit int
	send  Send[T, R]
	// ready is not buffered: who waits for a batch waits in the channel, and nothing is left behind when the loop ends.
	ready   chan *Call[T, R]
	stopped chan struct{}
}

// Call is an item on its way.
type Call[T, R any] struct {
	ctx    context.Context //nolint:containedctx // the life of the caller, who waits for this item
	item   T
	answer chan answer[R]
}

type answer[R any] struct {
	result R
	err    error
}

// NewQueue returns a queue whose batches hold at most limit items.
func NewQueue[T, R any](limit int, send Send[T, R]) *Queue[T, R] {
	return &Queue[T, R]{limit: limit, send: send, ready: make(chan *Call[T, R]), stopped: make(chan struct{})}
}

// Do waits for the result of item. While the store is unavailable the item is sent again until ctx ends; an item that
// is being sent is waited for beyond that, so that its outcome is known. An item that the store rejects fails alone.
func (q *Queue[T, R]) Do(ctx context.Context, item T) (R, error) {
	c := &Call[T, R]{ctx: ctx, item: item, answer: make(chan answer[R], 1)}
	var none R
	select {
	case q.ready <- c:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-q.stopped:
		return none, ErrStopped
	}
	a := <-c.answer
	return a.result, a.err
}

// Ready delivers the first item of a batch.
func (q *Queue[T, R]) Ready() <-chan *Call[T, R] { return q.ready }

// Close refuses further items. The loop calls it when it ends.
func (q *Queue[T, R]) Close() { close(q.stopped) }

// Flush sends first and what queued up behind it, and answers all of them.
func (q *Queue[T, R]) Flush(ctx context.Context, first *Call[T, R]) {
	q.deliver(ctx, q.collect(first))
}

func (q *Queue[T, R]) collect(first *Call[T, R]) []*Call[T, R] {
	calls := []*Call[T, R]{first}
	for len(calls) < q.limit {
		select {
		case c := <-q.ready:
			calls = append(calls, c)
		default:
			return calls
		}
	}
	return calls
}

func (q *Queue[T, R]) deliver(ctx context.Context, calls []*Call[T, R]) {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if calls = waiting(calls); len(calls) == 0 {
			return
		}
		results, err := q.try(ctx, calls)
		switch {
		case err == nil:
			for i, c := range calls {
				c.answer <- answer[R]{result: results[i]}
			}
			return
		case errors.Is(err, store.ErrRejected) && len(calls) > 1:
			for _, c := range calls {
				q.deliver(ctx, []*Call[T, R]{c})
			}
			return
		case !Repeatable(err) || !daemon.Sleep(ctx, wait):
			fail(calls, err)
			return
		}
	}
}

func (q *Queue[T, R]) try(ctx context.Context, calls []*Call[T, R]) ([]R, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	items := make([]T, len(calls))
	for i, c := range calls {
		items[i] = c.item
	}
	return q.send(ctx, items)
}

// Repeatable reports whether a call to the store that ended with err may be sent again, whatever its outcome was.
func Repeatable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// waiting answers those whose caller has given up and returns the others.
func waiting[T, R any](calls []*Call[T, R]) []*Call[T, R] {
	var left []*Call[T, R]
	for _, c := range calls {
		if c.ctx.Err() == nil {
			left = append(left, c)
			continue
		}
		c.answer <- answer[R]{err: context.Cause(c.ctx)}
	}
	return left
}

func fail[T, R any](calls []*Call[T, R], err error) {
	for _, c := range calls {
		c.answer <- answer[R]{err: err}
	}
}
