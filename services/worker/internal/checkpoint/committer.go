// Package checkpoint commits what runs have done: their steps (T3), their ends (T4), their handovers (T5) and their
// suspensions (T7).
//
// One loop per worker sends them, each kind as sets of what queued up during the last round trip. Since there is one
// loop, the writes of a run reach the store in the order in which they were asked for, and two writes of one run are
// never in flight together.
package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/batch"
)

const batchLimit = 64

// Store is the part of the store that the committer writes to.
type Store interface {
	Checkpoint(ctx context.Context, cps []store.Checkpoint) ([]store.CheckpointResult, error)
	Finish(ctx context.Context, fins []store.Finish) ([]store.FinishResult, error)
	Handover(ctx context.Context, cps []store.Checkpoint) ([]store.HandoverResult, error)
	Suspend(ctx context.Context, ss []store.Suspension) ([]store.SuspendResult, error)
}

// Committer is a daemon.Component; it must outlive the runs.
type Committer struct {
	checkpoints *batch.Queue[store.Checkpoint, store.CheckpointResult]
	finishes    *batch.Queue[store.Finish, store.FinishResult]
	handovers   *batch.Queue[store.Checkpoint, store.HandoverResult]
	suspensions *batch.Queue[store.Suspension, store.SuspendResult]
	fenced      metric.Int64Counter
	loops       daemon.Loops
}

// New returns a committer.
func New(s Store, meter metric.Meter) (*Committer, error) {
	fenced, err := meter.Int64Counter("hermes_fenced_writes_total",
		metric.WithDescription("Writes that found their run in other hands."))
	if err != nil {
		return nil, fmt.Errorf("counter of fenced writes: %w", err)
	}
	return &Committer{
		checkpoints: batch.NewQueue(batchLimit, s.Checkpoint),
		finishes:    batch.NewQueue(batchLimit, s.Finish),
		handovers:   batch.NewQueue(batchLimit, s.Handover),
		suspensions: batch.NewQueue(batchLimit, s.Suspend),
		fenced:      fenced,
	}, nil
}

// Start begins to commit.
func (c *Committer) Start(ctx context.Context) error {
	c.loops.Go(ctx, c.run)
	return nil
}

// Stop ends the loop; what waits is refused.
func (c *Committer) Stop(ctx context.Context) error { return c.loops.Stop(ctx) }

func (c *Committer) run(ctx context.Context) {
	defer c.checkpoints.Close()
	defer c.finishes.Close()
	defer c.handovers.Close()
	defer c.suspensions.Close()
	for {
		select {
		case call := <-c.checkpoints.Ready():
			c.checkpoints.Flush(ctx, call)
		case call := <-c.finishes.Ready():
			c.finishes.Flush(ctx, call)
		case call := <-c.handovers.Ready():
			c.handovers.Flush(ctx, call)
		case call := <-c.suspensions.Ready():
			c.suspensions.Flush(ctx, call)
		case <-ctx.Done():
			return
		}
	}
}

// Checkpoint stores a step; it is durable on return. While the store is unavailable it is sent again until ctx ends.
// Errors: store.ErrFenced, store.ErrRejected, or the cause of ctx.
func (c *Committer) Checkpoint(ctx context.Context, cp store.Checkpoint) (store.CheckpointResult, error) {
	result, err := c.checkpoints.Do(ctx, cp)
	if err = c.judge(ctx, "checkpoint", err, result.Err); err != nil {
		return store.CheckpointResult{}, err
	}
	return result, nil
}

// Finish ends a run; it is durable on return. While the store is unavailable it is sent again until ctx ends. Errors:
// store.ErrRejected, or the cause of ctx.
func (c *Committer) Finish(ctx context.Context, f store.Finish) (store.FinishResult, error) {
	result, err := c.finishes.Do(ctx, f)
	if err != nil {
		return store.FinishResult{}, fmt.Errorf("finish: %w", err)
	}
	if result.Outcome == store.FinishFenced {
		c.countFenced(ctx, "finish")
	}
	return result, nil
}

// Handover stores what a run has done and gives it back; it is durable on return, and gen is that of the queued run.
// While the store is unavailable it is sent again until ctx ends. Errors: store.ErrFenced, also if an earlier try of
// unknown outcome was written, store.ErrRejected, or the cause of ctx.
func (c *Committer) Handover(ctx context.Context, cp store.Checkpoint) (gen int64, err error) {
	result, err := c.handovers.Do(ctx, cp)
	if err = c.judge(ctx, "handover", err, result.Err); err != nil {
		return 0, err
	}
	return result.Gen, nil
}

// Suspend stores what a run has done and the question that it waits for, and frees it; it is durable on return. Errors
// are those of Handover.
func (c *Committer) Suspend(ctx context.Context, s store.Suspension) (store.SuspendResult, error) {
	result, err := c.suspensions.Do(ctx, s)
	if err = c.judge(ctx, "suspend", err, result.Err); err != nil {
		return store.SuspendResult{}, err
	}
	return result, nil
}

// judge joins the error of a batch with that of its own write, and counts the latter.
func (c *Committer) judge(ctx context.Context, statement string, err, own error) error {
	if err == nil {
		err = own
	}
	if errors.Is(err, store.ErrFenced) {
		c.countFenced(ctx, statement)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func (c *Committer) countFenced(ctx context.Context, statement string) {
	c.fenced.Add(ctx, 1, metric.WithAttributes(attribute.String("statement", statement)))
}
