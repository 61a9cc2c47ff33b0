// Package trim keeps the log of accepted messages below its limit: a log that is full refuses new messages, and what has
// been admitted is only kept so that it can be read again.
//
// A [Trimmer] looks at the streams of the partitions that its router owns. In one that is over 70 % of its limit it removes
// messages that are older than an hour and below the committed offset. The message at the offset stays: attaching
// compares it with what the store knows.
package trim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	every   = time.Minute
	timeout = 30 * time.Second
	// keep is how old a message has to be: after a crash of Postgres or the broker the last minutes are read again.
	keep = time.Hour
	// threshold is the part of the limit, in percent, over which a stream is trimmed.
	threshold = 70
)

// Log is what is trimmed.
type Log interface {
	LogInfo(ctx context.Context, partition int) (bus.LogInfo, error)
	SeqSince(ctx context.Context, partition int, t time.Time) (uint64, error)
	TrimLog(ctx context.Context, partition int, seq uint64) error
}

// Offsets tell how far partitions are admitted.
type Offsets interface {
	Offsets(ctx context.Context, partitions []int) ([]store.Offset, error)
}

// Deps of a Trimmer.
type Deps struct {
	Log   Log
	Store Offsets
	// Owned returns the partitions of this router.
	Owned  func() []int
	Logger *slog.Logger
	Meter  metric.Meter
}

// Trimmer is a daemon.Component.
type Trimmer struct {
	Deps
	trimmed metric.Int64Counter
	loops   daemon.Loops
	now     func() time.Time
	// failing: the last round ended with an error; it belongs to the loop.
	failing bool
}

// New returns a trimmer that does nothing until it is started.
func New(deps Deps) (*Trimmer, error) {
	trimmed, err := deps.Meter.Int64Counter("hermes_log_trims_total",
		metric.WithDescription("Times that admitted messages of a partition were removed because its stream was nearly full."))
	if err != nil {
		return nil, fmt.Errorf("trim metrics: %w", err)
	}
	return &Trimmer{Deps: deps, trimmed: trimmed, now: time.Now}, nil
}

// Start begins to look once a minute.
func (t *Trimmer) Start(ctx context.Context) error {
	t.loops.Go(ctx, t.run)
	return nil
}

// Stop ends the round in hand.
func (t *Trimmer) Stop(ctx context.Context) error { return t.loops.Stop(ctx) }

func (t *Trimmer) run(ctx context.Context) {
	for daemon.Sleep(ctx, every) {
		err := t.round(ctx)
		if err != nil && !t.failing && ctx.Err() == nil {
			t.Logger.WarnContext(ctx, "log not trimmed", "err", err)
		}
		t.failing = err != nil
	}
}

// round looks at each stream once.
func (t *Trimmer) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	offsets, err := t.Store.Offsets(ctx, t.Owned())
	if err != nil {
		return fmt.Errorf("trim: read offsets: %w", err)
	}
	streams := map[string][]store.Offset{}
	for _, off := range offsets {
		streams[off.Stream] = append(streams[off.Stream], off)
	}
	for stream, offs := range streams {
		if err := t.trimStream(ctx, offs); err != nil {
			return fmt.Errorf("trim %s: %w", stream, err)
		}
	}
	return nil
}

// trimStream trims the partitions of one stream. Offsets that belong to another stream than the one that holds the
// partition now say nothing about it.
func (t *Trimmer) trimStream(ctx context.Context, offs []store.Offset) error {
	info, err := t.Log.LogInfo(ctx, offs[0].Partition)
	if err != nil {
		return err
	}
	if info.MaxBytes == 0 || info.Bytes*100 <= info.MaxBytes*threshold {
		return nil
	}
	young, err := t.Log.SeqSince(ctx, offs[0].Partition, t.now().Add(-keep))
	if err != nil {
		return err
	}
	for _, off := range offs {
		upTo := min(off.LastSeq, int64(young)) - 1
		if off.Stream != info.Stream || !off.StreamCreated.Equal(info.Created.Truncate(time.Microsecond)) || upTo < int64(info.FirstSeq) {
			continue
		}
		if err := t.Log.TrimLog(ctx, off.Partition, uint64(upTo)); err != nil {
			return err
		}
		t.trimmed.Add(ctx, 1)
	}
	return nil
}
