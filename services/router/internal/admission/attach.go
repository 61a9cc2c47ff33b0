package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// rewindMargin covers the difference between the clocks of store and broker, and what was in flight.
const rewindMargin = 10 * time.Minute

// errStreamsChanged: the partition's offset belongs to a stream of another name, because the number of ingest streams
// was changed. Its old stream may hold messages that nobody has admitted, so the partition is not read.
var errStreamsChanged = errors.New("the number of ingest streams was changed")

// start says where an attachment begins.
type start struct {
	stream string
	// position is the stored offset, from the first sequence to read.
	position, from int64
}

// verdict is what a comparison of the stored offset with the stream says.
type verdict int

const (
	// resume: the stream is the one that was read; go on behind the offset.
	resume verdict = iota
	// begin: the partition was never read.
	begin
	// foreign: the offset belongs to a stream of another name.
	foreign
	// lost: the stream was created anew or lost its tail.
	lost
	// overrun: the stream no longer holds the message behind the offset.
	overrun
)

// judge compares an offset (nil: there is none) with the stream. headUID is the id of the message at the offset, ""
// if it is not known.
func judge(off *store.Offset, info bus.LogInfo, headUID string) verdict {
	switch {
	case off == nil:
		return begin
	case off.Stream != info.Stream:
		return foreign
	case !off.StreamCreated.Equal(created(info)),
		int64(info.LastSeq) < off.LastSeq,
		headUID != "" && headUID != off.LastUID:
		return lost
	case off.LastSeq < first(info)-1:
		return overrun
	default:
		return resume
	}
}

// created is the time at which the stream was created, as precise as the store keeps it.
func created(info bus.LogInfo) time.Time { return info.Created.UTC().Truncate(time.Microsecond) }

// first is the first sequence that the stream may hold; an empty one may say 0.
func first(info bus.LogInfo) int64 { return max(1, int64(info.FirstSeq)) }

// attach finds where reading a partition has to begin, before every reader.
func (a *Admitter) attach(ctx context.Context, partition int) (start, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	// The offset first: one that is newer than what is known of the stream would look like a lost tail.
	off, err := a.offset(ctx, partition)
	if err != nil {
		return start{}, err
	}
	info, err := a.logInfo(ctx, partition)
	if err != nil {
		return start{}, err
	}
	head, err := a.headUID(ctx, off, info)
	if err != nil {
		return start{}, err
	}
	switch judge(off, info, head) {
	case begin:
		return a.moveTo(ctx, nil, store.Offset{Partition: partition}, info, first(info)-1)
	case foreign:
		return start{}, fmt.Errorf("%w: the offset belongs to %s, messages are in %s", errStreamsChanged, off.Stream, info.Stream)
	case lost:
		return a.rewind(ctx, off, info)
	case overrun:
		a.metrics.overruns.Add(ctx, 1)
		a.Logger.ErrorContext(ctx, "messages behind the offset have left the stream before they were read",
			"partition", partition, "offset", off.LastSeq, "first_seq", info.FirstSeq)
		return a.moveTo(ctx, off, *off, info, first(info)-1)
	case resume:
	}
	return start{stream: info.Stream, position: off.LastSeq, from: off.LastSeq + 1}, nil
}

// logInfo creates the streams where they are missing: those in memory are gone after a restart of the broker.
func (a *Admitter) logInfo(ctx context.Context, partition int) (bus.LogInfo, error) {
	info, err := a.Log.LogInfo(ctx, partition)
	if !errors.Is(err, bus.ErrNotFound) {
		return info, err
	}
	if err := a.Log.EnsureStreams(ctx); err != nil {
		return info, fmt.Errorf("create streams: %w", err)
	}
	return a.Log.LogInfo(ctx, partition)
}

func (a *Admitter) offset(ctx context.Context, partition int) (*store.Offset, error) {
	offs, err := a.Store.Offsets(ctx, []int{partition})
	if err != nil || len(offs) == 0 {
		return nil, err
	}
	return &offs[0], nil
}

// headUID returns the id of the message at the offset, "" where there is nothing to compare.
func (a *Admitter) headUID(ctx context.Context, off *store.Offset, info bus.LogInfo) (string, error) {
	if off == nil || off.LastUID == "" || off.LastSeq < first(info) || off.LastSeq > int64(info.LastSeq) {
		return "", nil
	}
	e, err := a.Log.EntryAt(ctx, off.Partition, uint64(off.LastSeq))
	if errors.Is(err, bus.ErrNotFound) {
		return "", nil // it has left the stream since
	}
	return rowText(e.ID), err
}

// rewind goes back to a time at which the stream and the store surely agreed. What was admitted before is recognised
// by its id.
func (a *Admitter) rewind(ctx context.Context, off *store.Offset, info bus.LogInfo) (start, error) {
	if off.LastAt.IsZero() { // nothing was ever admitted
		return a.moveTo(ctx, off, *off, info, first(info)-1)
	}
	since, err := a.Log.SeqSince(ctx, off.Partition, off.LastAt.Add(-rewindMargin))
	if err != nil {
		return start{}, err
	}
	from := max(first(info), int64(since))
	a.metrics.rewinds.Add(ctx, 1)
	a.Logger.WarnContext(ctx, "the stream lost messages, reading again",
		"partition", off.Partition, "offset", off.LastSeq, "last_seq", info.LastSeq, "from", from)
	return a.moveTo(ctx, off, *off, info, from-1)
}

// moveTo replaces the offset old by next at seq of the stream, and begins there.
func (a *Admitter) moveTo(ctx context.Context, old *store.Offset, next store.Offset, info bus.LogInfo, seq int64) (start, error) {
	next.Stream, next.StreamCreated, next.LastSeq, next.LastUID = info.Stream, created(info), seq, ""
	if err := a.Store.SetOffset(ctx, old, next); err != nil {
		return start{}, fmt.Errorf("set the offset: %w", err)
	}
	return start{stream: info.Stream, position: seq, from: seq + 1}, nil
}
