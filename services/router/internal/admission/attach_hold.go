package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/hold"
)

const (
	// holdPoll is how often a held partition is looked at.
	holdPoll = 2 * time.Second
	// answeredSince is how long the broker keeps lifecycle events.
	answeredSince   = 24 * time.Hour
	answeredTimeout = 2 * time.Minute
)

// errHeld: nothing of the partition is admitted until an operator has chosen.
var errHeld = errors.New("partition is held")

// checkCopy compares the offset at which reading would begin with its copy. It returns errHeld if Postgres went back and
// nobody has chosen yet, and the choice while it still applies to what is read next.
//
// The order of the writes makes every crash harmless: the hold is there before the copy is taken back, and a hold outlives
// the copy that proved it.
func (a *Admitter) checkCopy(ctx context.Context, partition int, begun start) (*hold.Hold, error) {
	kv, err := a.engine(ctx)
	if err != nil {
		return nil, err
	}
	held, revision, err := hold.Get(ctx, kv, partition)
	if err != nil {
		return nil, err
	}
	c, _, err := loadCopy(ctx, kv, partition)
	if err != nil {
		return nil, err
	}
	wentBack := c.sameStream(begun.stream, begun.created) && c.proves(begun.position, a.now())
	switch {
	case wentBack && (held == nil || held.Choice != ""):
		next := a.newHold(partition, begun, c.last())
		if held != nil && held.Covers(begun.stream, begun.created, next.UntilSeq) { // it went back once more meanwhile
			next.UntilSeq = held.UntilSeq
		}
		if err := hold.Put(ctx, kv, next, revision); err != nil {
			return nil, err
		}
		return nil, errors.Join(errHeld, a.resetCopy(ctx, partition, begun))
	case wentBack:
		return nil, errors.Join(errHeld, a.resetCopy(ctx, partition, begun))
	case held == nil:
		return nil, nil
	case held.Choice == "":
		return nil, errHeld
	case !held.Covers(begun.stream, begun.created, begun.position+1):
		return nil, hold.End(ctx, kv, partition, revision)
	}
	return held, nil
}

func (a *Admitter) newHold(partition int, begun start, copied int64) hold.Hold {
	return hold.Hold{
		Partition: partition, Reason: hold.ReasonWentBack, Since: a.now().UTC(), Stream: begun.stream, Created: begun.created,
		Offset: begun.position, CopiedOffset: copied, UntilSeq: copied,
	}
}

// endHold forgets a hold when all that its choice applies to is admitted.
func (a *Admitter) endHold(ctx context.Context, at *attachment) error {
	if at.ended() || at.again == nil || at.again.Covers(at.stream, at.created, at.position.Load()+1) {
		return nil
	}
	kv, err := a.engine(ctx)
	if err != nil {
		return err
	}
	held, revision, err := hold.Get(ctx, kv, at.partition)
	if err != nil || held == nil || *held != *at.again { // forgotten, or another one
		return err
	}
	return hold.End(ctx, kv, at.partition, revision)
}

// replay says which of the messages that are admitted once more get an answer.
type replay struct {
	until uint64
	// all: none of them.
	all bool
	// answered are the uids of those that were answered before.
	answered map[string]struct{}
}

// replayOf prepares what an operator chose; nil: everything is answered.
func (a *Admitter) replayOf(ctx context.Context, partition int, h *hold.Hold) (*replay, error) {
	if h == nil || h.Choice == hold.Answer {
		return nil, nil
	}
	r := &replay{until: uint64(h.UntilSeq), all: h.Choice == hold.Store}
	if r.all {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answeredTimeout)
	defer cancel()
	var err error
	r.answered, err = a.answered(ctx, partition)
	return r, err
}

// answered collects the messages of a partition that are known to be answered. The events of a reply name its run, and those
// at its beginning the message.
func (a *Admitter) answered(ctx context.Context, partition int) (map[string]struct{}, error) {
	uids, runs := map[string]struct{}{}, map[string]struct{}{}
	since := a.now().Add(-answeredSince)
	scan := func(f func(*event.Lifecycle), types ...event.Type) error {
		for _, t := range types {
			err := a.Log.ScanEvents(ctx, partition, string(t), since, func(m bus.Msg) error {
				ev, err := event.DecodeLifecycle(m.Data)
				if err == nil {
					f(ev)
				}
				return nil // one that cannot be read tells nothing
			})
			if err != nil {
				return fmt.Errorf("look for answers: %w", err)
			}
		}
		return nil
	}
	err := scan(func(ev *event.Lifecycle) {
		if ev.MsgUID != "" {
			uids[ev.MsgUID] = struct{}{}
		}
		if ev.RunID != "" {
			runs[ev.RunID] = struct{}{}
		}
	}, event.ResponseSent, event.ProcessingCompleted)
	if err != nil {
		return nil, err
	}
	return uids, scan(func(ev *event.Lifecycle) {
		if _, done := runs[ev.RunID]; done && ev.MsgUID != "" {
			uids[ev.MsgUID] = struct{}{}
		}
	}, event.ProcessingStarted, event.RunStarted, event.MessageMerged)
}

// withoutRun reports whether a message is stored and not answered, because it was admitted before Postgres went back.
func (a *attachment) withoutRun(seq uint64, uid string) bool {
	if a.replay == nil || seq > a.replay.until {
		return false
	}
	_, answered := a.replay.answered[uid]
	return a.replay.all || answered
}

// withoutAnswer makes the row of such a message one that is only covered by the next run.
func (c *candidate) withoutAnswer() {
	if !c.from.withoutRun(c.Seq, c.row.UID) {
		return
	}
	if c.row.Kind == store.KindUser || c.row.Kind == store.KindSteer {
		c.row.Kind = store.KindSystem
	}
	c.row.WantsRun, c.row.Wakes, c.row.Steer, c.row.Stop = false, false, false, false
	c.row.Notice, c.row.NoticeIfIdle = nil, false
	c.row.RejectIfBusy, c.row.Interrupt, c.row.Collect, c.row.EndsCollect = false, false, nil, false
}
