package poll

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
)

// Bucket holds the cursors of all feeds.
const Bucket = "cursors"

// Update is one event of a feed.
type Update struct {
	ID int64
	// Lane names the conversation: its updates are taken one after the other. Those of "" wait for nothing and hold
	// nothing up.
	Lane string
	// Take returns nil when the update may be confirmed.
	Take func(ctx context.Context) error
}

// ErrConflict: somebody else asks for the same updates.
var ErrConflict = errors.New("poll: another poller is active")

// WaitError asks for a pause.
type WaitError struct {
	After time.Duration
	Err   error
}

func (e *WaitError) Error() string { return e.Err.Error() }

func (e *WaitError) Unwrap() error { return e.Err }

// Feed is what is polled.
type Feed interface {
	// Open is called by each new owner before it polls.
	Open(ctx context.Context) error
	// Fetch waits up to wait for updates from offset on, and confirms those below it. Errors: ErrConflict, *WaitError, or
	// others.
	Fetch(ctx context.Context, offset int64, wait time.Duration) ([]Update, error)
}

// Timing of a Poller.
type Timing struct {
	// Watch is how often a replica that does not own the feed looks at the key; Renew is how often its owner rewrites it.
	Watch, Renew time.Duration
	// Expire is how long a key has to rest before it is taken over, by the clock of the one that takes it. The owner stops
	// Margin before.
	Expire, Margin time.Duration
	// Write bounds one call to the broker.
	Write time.Duration
	// LongPoll is how long the platform may wait for updates, Gap the least time between two polls without any.
	LongPoll, Gap time.Duration
	// Retry and MaxRetry are the first and the longest pause after a failure.
	Retry, MaxRetry time.Duration
}

// DefaultTiming is that of production.
func DefaultTiming() Timing {
	return Timing{
		Watch: 2 * time.Second, Renew: 4 * time.Second, Expire: 15 * time.Second, Margin: 3 * time.Second,
		Write: 3 * time.Second, LongPoll: 25 * time.Second, Gap: 250 * time.Millisecond,
		Retry: time.Second, MaxRetry: 30 * time.Second,
	}
}

// Buckets opens buckets of the broker.
type Buckets interface {
	OpenKV(ctx context.Context, bucket string) (bus.KV, error)
}

// Deps are what a Poller works with.
type Deps struct {
	Buckets Buckets
	// Key is that of the feed in the bucket.
	Key    string
	Feed   Feed
	Logger *slog.Logger
	Timing Timing
}

// Poller polls one feed while it owns it.
type Poller struct {
	Deps
	owner string
	delay *backoff.ExponentialBackOff
	// failing: the last poll did not succeed.
	failing bool
}

// New returns a Poller, which has a name of its own among all replicas.
func New(d Deps) *Poller {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = d.Timing.Retry, d.Timing.MaxRetry
	return &Poller{Deps: d, owner: rand.Text(), delay: delay}
}

// Run watches and polls until ctx ends, and then gives the feed back. It is called once.
func (p *Poller) Run(ctx context.Context) {
	for {
		c, err := p.acquire(ctx)
		if err != nil {
			return
		}
		p.Logger.InfoContext(ctx, "polling", "key", p.Key)
		err = p.hold(ctx, c)
		p.release(ctx, c, err)
		if ctx.Err() != nil {
			return
		}
		p.Logger.WarnContext(ctx, "polling ended", "key", p.Key, "err", err)
		if errors.Is(err, ErrConflict) {
			daemon.Sleep(ctx, p.delay.NextBackOff()) // whoever it is gets some time
		}
	}
}

func (p *Poller) release(ctx context.Context, c *cursor, err error) {
	if errors.Is(err, errLost) {
		return
	}
	if err := c.release(context.WithoutCancel(ctx)); err != nil { // the write has a bound of its own
		p.Logger.WarnContext(ctx, "cursor not released", "key", p.Key, "err", err)
	}
}

// hold polls as long as the key is ours, and returns why it is no longer.
func (p *Poller) hold(ctx context.Context, c *cursor) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var renewal sync.WaitGroup
	renewal.Go(func() {
		if err := p.keep(ctx, c); err != nil {
			cancel(err)
		}
	})
	err := p.poll(ctx, c)
	cancel(nil)
	renewal.Wait()
	return err
}

// keep renews the key; errLost when it may be somebody else's.
func (p *Poller) keep(ctx context.Context, c *cursor) error {
	for {
		if !daemon.Sleep(ctx, min(p.Timing.Renew, time.Until(c.certainUntil()))) {
			return nil
		}
		if time.Now().After(c.certainUntil()) {
			return errLost
		}
		err := c.renew(ctx)
		if errors.Is(err, errLost) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "cursor not renewed", "key", p.Key, "err", err)
		}
	}
}

func (p *Poller) poll(ctx context.Context, c *cursor) error {
	// accepted are updates that were taken and could not be confirmed yet, because one before them failed.
	accepted := map[int64]bool{}
	opened := false
	for {
		var err error
		if !opened {
			err = p.Feed.Open(ctx)
			opened = err == nil
		}
		if opened {
			err = p.step(ctx, c, accepted)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errLost), errors.Is(err, ErrConflict):
			return err
		default:
			p.pause(ctx, err)
		}
	}
}

// step fetches updates, takes them and moves the cursor.
func (p *Poller) step(ctx context.Context, c *cursor, accepted map[int64]bool) error {
	began := time.Now()
	updates, err := p.Feed.Fetch(ctx, c.offset(), p.Timing.LongPoll)
	if err != nil {
		return err
	}
	if len(updates) == 0 {
		daemon.Sleep(ctx, p.Timing.Gap-time.Since(began))
		return nil
	}
	next, failed := take(ctx, updates, accepted)
	if next != c.offset() {
		// A stop comes after what is stored is written down: without that it would be taken again.
		if err := c.advance(context.WithoutCancel(ctx), next); err != nil {
			return err
		}
	}
	if failed == nil {
		clear(accepted)
	}
	return failed
}

// take takes the updates, those of different lanes at the same time, and returns the first that is still to be taken. A
// lane ends at its first failure, so that nothing overtakes it.
func take(ctx context.Context, updates []Update, accepted map[int64]bool) (next int64, failed error) {
	errs := make([]error, len(updates))
	var lanes sync.WaitGroup
	for _, lane := range split(updates, accepted) {
		lanes.Go(func() {
			for n, i := range lane {
				if errs[i] = takeOne(ctx, updates[i]); errs[i] != nil {
					for _, behind := range lane[n+1:] {
						errs[behind] = errs[i]
					}
					return
				}
			}
		})
	}
	lanes.Wait()
	for i, u := range updates {
		if errs[i] == nil {
			accepted[u.ID] = true
		}
	}
	return firstOpen(updates, errs)
}

func takeOne(ctx context.Context, u Update) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// What has begun is finished: accepting has a bound of its own.
	if err := u.Take(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("take update %d: %w", u.ID, err)
	}
	return nil
}

// split deals the updates that are not accepted yet into lanes of indices.
func split(updates []Update, accepted map[int64]bool) [][]int {
	var lanes [][]int
	byName := map[string]int{}
	for i, u := range updates {
		if accepted[u.ID] {
			continue
		}
		n, known := byName[u.Lane]
		if !known || u.Lane == "" {
			n = len(lanes)
			lanes, byName[u.Lane] = append(lanes, nil), n
		}
		lanes[n] = append(lanes[n], i)
	}
	return lanes
}

// firstOpen is the lowest id that failed, or the one behind the highest of all. Ids may begin anew at any number, so what
// was the offset before does not count.
func firstOpen(updates []Update, errs []error) (next int64, failed error) {
	for i, u := range updates {
		if errs[i] != nil && (failed == nil || u.ID < next) {
			next, failed = u.ID, errs[i]
		}
	}
	if failed != nil {
		return next, failed
	}
	next = updates[0].ID
	for _, u := range updates {
		next = max(next, u.ID)
	}
	return next + 1, nil
}

// pause waits after a failure, and logs the change.
func (p *Poller) pause(ctx context.Context, err error) {
	if err == nil {
		if p.failing {
			p.Logger.InfoContext(ctx, "poll works again", "key", p.Key)
		}
		p.failing = false
		p.delay.Reset()
		return
	}
	if !p.failing {
		p.Logger.WarnContext(ctx, "poll does not work", "key", p.Key, "err", err)
	}
	p.failing = true
	wait := p.delay.NextBackOff()
	if asked, ok := errors.AsType[*WaitError](err); ok {
		wait = max(wait, asked.After)
	}
	daemon.Sleep(ctx, wait)
}
