package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/hold"
)

// rewindMargin covers the difference between the clocks of store and broker, and what was in flight.
const rewindMargin = 10 * time.Minute

// start says where an attachment begins.
type start struct {
	// log is where the partition is read: its own, or the stream that held it before the number of streams was changed.
	log     bus.Log
	stream  string
	created time.Time
	// position is the stored offset, from the first sequence to read.
	position, from int64
	// until is the last sequence to read, 0 without an end. It is set for an old stream.
	until int64
	// again is set while messages are read that had been admitted before Postgres went back.
	again *hold.Hold
}

// verdict is what a comparison of the stored offset with the stream says.
type verdict int

const (
	// resume: the stream is the one that was read; go on behind the offset.
	resume verdict = iota
	// begin: the partition was never read.
	begin
	// lost: the stream was created anew or lost its tail.
	lost
	// overrun: the stream no longer holds the message behind the offset.
	overrun
)

// judge compares an offset (nil: there is none) with the stream of its name. headUID is the id of the message at the offset, ""
// if it is not known.
func judge(off *store.Offset, info bus.LogInfo, headUID string) verdict {
	switch {
	case off == nil:
		return begin
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
	if off != nil && off.Stream != info.Stream {
		return a.attachOld(ctx, off, info)
	}
	return a.attachTo(ctx, a.Log, partition, off, info)
}

// attachTo compares the offset with a stream and says where to go on in it.
func (a *Admitter) attachTo(ctx context.Context, log bus.Log, partition int, off *store.Offset, info bus.LogInfo) (start, error) {
	head, err := a.headUID(ctx, log, off, info)
	if err != nil {
		return start{}, err
	}
	verdict := judge(off, info, head)
	if verdict == lost {
		return a.rewind(ctx, log, off, info)
	}
	begun := start{log: log, stream: info.Stream, created: created(info), position: first(info) - 1}
	if off != nil {
		begun.position = off.LastSeq
	}
	if begun.again, err = a.checkCopy(ctx, partition, begun); err != nil {
		return start{}, err
	}
	switch verdict {
	case begin:
		return a.moveTo(ctx, nil, store.Offset{Partition: partition}, begun, first(info)-1)
	case overrun:
		a.metrics.overruns.Add(ctx, 1)
		a.Logger.ErrorContext(ctx, "messages behind the offset have left the stream before they were read",
			"partition", partition, "offset", off.LastSeq, "first_seq", info.FirstSeq)
		return a.moveTo(ctx, off, *off, begun, first(info)-1)
	case lost, resume:
	}
	begun.from = begun.position + 1
	return begun, nil
}

// attachOld reads a stream to its end that held the partition before the number of streams was changed, and goes over to
// the one that holds it now after that. The old one got no message of the partition any more when the new one existed.
func (a *Admitter) attachOld(ctx context.Context, off *store.Offset, info bus.LogInfo) (start, error) {
	old, err := a.Log.OldLog(ctx, off.Partition, off.Stream)
	if errors.Is(err, bus.ErrNotFound) {
		a.Logger.WarnContext(ctx, "the old stream of a partition is gone, going over", "partition", off.Partition, "stream", off.Stream)
		return a.goOver(ctx, off, info)
	}
	if err != nil {
		return start{}, err
	}
	oldInfo, err := old.LogInfo(ctx, off.Partition)
	if err != nil {
		return start{}, err
	}
	begun, err := a.attachTo(ctx, old, off.Partition, off, oldInfo)
	if err != nil {
		return start{}, err
	}
	last, err := old.LastEntry(ctx, off.Partition)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return start{}, err
	}
	if begun.until = int64(last.Seq); begun.until >= begun.from {
		return begun, nil
	}
	a.Logger.InfoContext(ctx, "the old stream of a partition has been read, going over", "partition", off.Partition, "stream", off.Stream)
	read := *off // attachTo may have moved it
	read.StreamCreated, read.LastSeq = begun.created, begun.position
	return a.goOver(ctx, &read, info)
}

func (a *Admitter) goOver(ctx context.Context, off *store.Offset, info bus.LogInfo) (start, error) {
	return a.moveTo(ctx, off, *off, start{log: a.Log, stream: info.Stream, created: created(info)}, first(info)-1)
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
func (a *Admitter) headUID(ctx context.Context, log bus.Log, off *store.Offset, info bus.LogInfo) (string, error) {
	if off == nil || off.LastUID == "" || off.LastSeq < first(info) || off.LastSeq > int64(info.LastSeq) {
		return "", nil
	}
	e, err := log.EntryAt(ctx, off.Partition, uint64(off.LastSeq))
	if errors.Is(err, bus.ErrNotFound) {
		return "", nil // it has left the stream since
	}
	return rowText(e.ID), err
}

// rewind goes back to a time at which the stream and the store surely agreed. What was admitted before is recognised
// by its id.
func (a *Admitter) rewind(ctx context.Context, log bus.Log, off *store.Offset, info bus.LogInfo) (start, error) {
	begun := start{log: log, stream: info.Stream, created: created(info)}
	if off.LastAt.IsZero() { // nothing was ever admitted
		return a.moveTo(ctx, off, *off, begun, first(info)-1)
	}
	since, err := log.SeqSince(ctx, off.Partition, off.LastAt.Add(-rewindMargin))
	if err != nil {
		return start{}, err
	}
	from := max(first(info), int64(since))
	a.metrics.rewinds.Add(ctx, 1)
	a.Logger.WarnContext(ctx, "the stream lost messages, reading again",
		"partition", off.Partition, "offset", off.LastSeq, "last_seq", info.LastSeq, "from", from)
	// The copy first: one that is higher than the offset would look as if Postgres had gone back.
	begun.position = from - 1
	if err := a.resetCopy(ctx, off.Partition, begun); err != nil {
		return start{}, err
	}
	return a.moveTo(ctx, off, *off, begun, from-1)
}

// moveTo replaces the offset old by next at seq of the stream, and begins there.
func (a *Admitter) moveTo(ctx context.Context, old *store.Offset, next store.Offset, begun start, seq int64) (start, error) {
	next.Stream, next.StreamCreated, next.LastSeq, next.LastUID = begun.stream, begun.created, seq, ""
	if err := a.Store.SetOffset(ctx, old, next); err != nil {
		return start{}, fmt.Errorf("set the offset: %w", err)
	}
	begun.position, begun.from = seq, seq+1
	return begun, nil
}
