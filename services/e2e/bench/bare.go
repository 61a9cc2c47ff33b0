package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
)

// Bare operations by their names in the result.
const (
	opPublish = "publish to ING, PubAck"
	opReserve = "reserve leases"
	opAcquire = "acquire leases"
	opRenew   = "renew leases"
	opRelease = "release leases"
	opAdmit   = "admit (T1)"
	opClaim   = "claim (T2)"
	opFinish  = "finish (T4)"
	opTake    = "claim deliveries (T8)"
	opMark    = "mark deliveries (T8)"

	hopHTTP   = "HTTP request until it is read"
	hopIngest = "publish to ING until a reader has it"
	hopRun    = "ring RUN until a worker has it"
	hopOut    = "ring OUT until an egress has it"
)

// bare is what a turn is made of, measured without the services.
type bare struct {
	// Batches are operations over as many items at once as there are clients, by one loop, as the services do them.
	Batches []operation
	// Finishes are single finishes from so many connections at once.
	Finishes []operation
	// Hops are between two processes, one message at a time.
	Hops []operation
	// Foreign is the share of the processors that others used meanwhile.
	Foreign float64
}

// operation is a bare operation over Size items at once, or from Size connections.
type operation struct {
	Name   string
	Size   int
	Call   timing
	PerSec float64
}

// bareSizes are numbers of items or connections at once.
func bareSizes() []int { return []int{1, 16, 64} }

// median returns the median of one call of an operation over one item.
func (b *bare) median(name string) time.Duration {
	for _, list := range [][]operation{b.Batches, b.Hops} {
		for _, op := range list {
			if op.Name == name && op.Size == 1 {
				return op.Call.P50
			}
		}
	}
	return 0
}

// finishRate is the better of the rates at 16 and 64 connections.
func (b *bare) finishRate() float64 {
	best := 0.0
	for _, op := range b.Finishes {
		if op.Size == 16 || op.Size == 64 {
			best = max(best, op.PerSec)
		}
	}
	return best
}

// term is a part of the way of one turn.
type term struct {
	Name string
	Took time.Duration
}

// path is the way of a turn without tools from one end to the other. What is done beside it, such as marks and renewals,
// does not count; neither does reading the history, which a worker may have at hand.
func (b *bare) path() (terms []term, sum time.Duration) {
	for _, name := range []string{
		hopHTTP, hopIngest, opAdmit, opReserve, hopRun, opAcquire, opClaim, opFinish, hopOut, opTake, hopHTTP,
	} {
		took := b.median(name)
		terms = append(terms, term{name, took})
		sum += took
	}
	return terms, sum
}

// measureBare needs the servers for itself: no service may run.
func measureBare(ctx context.Context, d time.Duration, s *servers) (b bare, err error) {
	e, err := openEngine(ctx, s)
	if err != nil {
		return b, fmt.Errorf("bare operations: %w", err)
	}
	defer func() { err = errors.Join(err, e.close()) }()
	sampler, err := newSampler(s, nil)
	if err != nil {
		return b, err
	}
	from, err := sampler.take(ctx)
	if err != nil {
		return b, err
	}
	if err := e.measureAll(ctx, d, s.postgres.URL(), &b); err != nil {
		return b, err
	}
	to, err := sampler.take(ctx)
	b.Foreign = spend(from, to, 1).Foreign
	return b, err
}

func (e *engine) measureAll(ctx context.Context, d time.Duration, database string, b *bare) (err error) {
	progress("bare hops")
	if b.Hops, err = e.hops(ctx, d); err != nil {
		return fmt.Errorf("bare hops: %w", err)
	}
	for _, n := range bareSizes() {
		progress("bare operations over %d", n)
		ops, err := e.batches(ctx, n, d)
		if err != nil {
			return fmt.Errorf("bare operations over %d: %w", n, err)
		}
		b.Batches = append(b.Batches, ops...)
		progress("bare finishes from %d connections", n)
		op, err := e.finishes(ctx, database, n, d)
		if err != nil {
			return fmt.Errorf("bare finishes from %d connections: %w", n, err)
		}
		b.Finishes = append(b.Finishes, op)
	}
	return nil
}

// engine is the backends that bare operations use, as a service opens them.
type engine struct {
	store  *pgstore.Store
	leases *redislease.Leases
	bus    *natsbus.Bus
	// positions are the offsets of the partitions.
	positions map[int]int64
	closers   []io.Closer
}

type closer func() error

func (c closer) Close() error { return c() }

func openEngine(ctx context.Context, s *servers) (e *engine, err error) {
	e = &engine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.store, err = pgstore.Open(ctx, pgstore.Config{URL: s.postgres.URL()}); err != nil {
		return e, err
	}
	e.closers = append(e.closers, closer(func() error { e.store.Close(); return nil }))
	if e.leases, err = redislease.Open(ctx, redislease.Config{URL: s.redis.URL()}); err != nil {
		return e, err
	}
	e.closers = append(e.closers, e.leases)
	cfg := natsbus.Config{URL: s.nats.url, Name: "bench", Streams: bus.DefaultConfig()}
	if e.bus, err = natsbus.Connect(ctx, cfg, slog.New(slog.DiscardHandler)); err != nil {
		return e, err
	}
	e.closers = append(e.closers, e.bus)
	if err = e.bus.EnsureStreams(ctx); err != nil {
		return e, err
	}
	e.positions, err = positions(ctx, e.store)
	return e, err
}

func (e *engine) close() error {
	var errs []error
	for _, c := range e.closers {
		errs = append(errs, c.Close())
	}
	e.closers = nil
	return errors.Join(errs...)
}
