package admission

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	// attachTimeout is short: requests that a restarting broker lost are never answered.
	attachTimeout = 3 * time.Second
	// readerRoom holds entries between a reader and the queue; the reader has a buffer of its own.
	readerRoom = 8
	// settled is the life of an attachment after which the next one need not be delayed. Of two routers that read one
	// partition the one that gets nothing committed slows down.
	settled = 10 * time.Second
	// lookForEnd is how often the reader of an old stream looks whether its end is admitted.
	lookForEnd = 50 * time.Millisecond
)

var (
	// errDropped: the admission loop gave the attachment up.
	errDropped = errors.New("offset moved")
	// errAllRead: an old stream is read to its end.
	errAllRead = errors.New("old stream is read to its end")
)

// reader keeps one partition attached until it is stopped.
type reader struct {
	*Admitter
	partition int
	stop      context.CancelFunc
	current   atomic.Pointer[attachment]
	// held: an operator has to choose before the partition is read.
	held atomic.Bool
	// failing: the last try did not get as far as reading; it belongs to run.
	failing bool
}

func (r *reader) run(ctx context.Context) {
	delay := newBackOff()
	for ctx.Err() == nil {
		begin := time.Now()
		progress, err := r.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if progress || time.Since(begin) > settled {
			delay.Reset()
		}
		r.report(ctx, err)
		if r.held.Load() {
			daemon.Sleep(ctx, holdPoll)
			continue
		}
		daemon.Sleep(ctx, delay.NextBackOff())
	}
}

// read attaches and delivers until something is in doubt. progress: messages were admitted meanwhile.
func (r *reader) read(ctx context.Context) (progress bool, err error) {
	// Nothing of the attachment before may be on its way into the store when the offset is read.
	if err := r.idle(ctx); err != nil {
		return false, err
	}
	begin, err := r.attach(ctx, r.partition)
	if err != nil {
		return false, fmt.Errorf("attach: %w", err)
	}
	again, err := r.replayOf(ctx, r.partition, begin.again)
	if err != nil {
		return false, err
	}
	at := newAttachment(ctx, r.partition, begin)
	at.replay = again
	defer at.drop()
	r.current.Store(at)
	err = r.follow(ctx, at, begin)
	return at.position.Load() > begin.position, err
}

// follow forwards the entries of one log reader to the queue.
func (r *reader) follow(ctx context.Context, at *attachment, begin start) error {
	entries := make(chan bus.Entry, readerRoom)
	log, err := begin.log.ReadLog(ctx, r.partition, uint64(begin.from), entries)
	if err != nil {
		return err
	}
	r.failing = false
	r.held.Store(false)
	err = r.forward(at, log, entries, begin.until)
	return errors.Join(err, log.Close())
}

// forward ends with errAllRead when everything up to until is admitted.
func (r *reader) forward(at *attachment, log bus.LogReader, entries <-chan bus.Entry, until int64) error {
	var look <-chan time.Time
	if until > 0 {
		ticker := time.NewTicker(lookForEnd)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case e := <-entries:
			at.delivered.Store(int64(e.Seq))
			select {
			case r.queue <- delivery{Entry: e, from: at}:
			case <-at.done:
				return errDropped
			}
		case <-look:
			if at.position.Load() >= until {
				return errAllRead
			}
		case <-log.Broken():
			return log.Err()
		case <-at.done:
			return errDropped
		}
	}
}

// report logs why a partition is not read for the moment; repeated failures of one outage only once.
func (r *reader) report(ctx context.Context, err error) {
	var moved *store.OffsetMovedError
	switch {
	case errors.Is(err, errDropped), errors.As(err, &moved):
		r.metrics.moved.Add(ctx, 1)
		r.Logger.InfoContext(ctx, "partition is read by another router, attaching again", "partition", r.partition)
	case errors.Is(err, errAllRead):
	case errors.Is(err, errHeld):
		if !r.held.Swap(true) {
			r.Logger.ErrorContext(ctx, "partition held: Postgres knows less than it did; an operator has to choose how to go on",
				"partition", r.partition, "err", err)
		}
	case !r.failing:
		r.Logger.WarnContext(ctx, "partition reader ended, attaching again", "partition", r.partition, "err", err)
		r.failing = true
	}
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 20*time.Millisecond, 5*time.Second
	return b
}
