package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// admitTimeout bounds one try.
const admitTimeout = 10 * time.Second

// admit stores a batch, whatever it takes: it retries while the store is unavailable, drops the partitions that another
// router has moved, and finds the message that the store refuses. false: ctx ended first, and nothing that comes after
// the batch may be admitted.
func (a *Admitter) admit(ctx context.Context, batch []*candidate) (proceed bool) {
	delay := newBackOff()
	for {
		if batch = live(batch); len(batch) == 0 {
			return true
		}
		admitted, err := a.try(ctx, batch)
		var moved *store.OffsetMovedError
		switch {
		case err == nil:
			a.committed(ctx, batch, admitted)
			return true
		case errors.As(err, &moved):
			dropMoved(batch, moved.Partitions)
		case errors.Is(err, store.ErrRejected) && len(batch) > 1:
			half := len(batch) / 2
			return a.admit(ctx, batch[:half]) && a.admit(ctx, batch[half:])
		case errors.Is(err, store.ErrRejected):
			a.park(ctx, batch[0], err)
		default:
			a.Logger.WarnContext(ctx, "admission is waiting for the store", "messages", len(batch), "err", err)
			if !wait(ctx, delay.NextBackOff()) {
				leave(batch, err)
				return false
			}
		}
	}
}

// try sends a batch once. A stop lets it finish, so that what is committed is also dispatched.
func (a *Admitter) try(ctx context.Context, batch []*candidate) ([]store.Admitted, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), admitTimeout)
	defer cancel()
	if err := a.answer(ctx, batch); err != nil {
		return nil, err
	}
	adm := admission(batch)
	admitted, err := a.Store.Admit(ctx, adm)
	if err == nil && len(admitted) != len(adm.Messages) {
		return nil, fmt.Errorf("%w: %d answers for %d messages", store.ErrUnavailable, len(admitted), len(adm.Messages))
	}
	return admitted, err
}

// dropMoved ends the attachments of partitions that another router has moved; all of them if the store names none.
func dropMoved(batch []*candidate, partitions []int) {
	named := slices.ContainsFunc(batch, func(c *candidate) bool { return slices.Contains(partitions, c.from.partition) })
	for _, c := range batch {
		if !named || slices.Contains(partitions, c.from.partition) {
			c.from.drop()
		}
	}
}

// park makes a dead letter of a message that the store refuses. If it refuses the dead letter too, the cause is not the
// message: the partition is attached again, with its delay.
func (a *Admitter) park(ctx context.Context, c *candidate, err error) {
	if c.dead != nil {
		a.Logger.ErrorContext(ctx, "dead letter refused", "partition", c.from.partition, "err", err)
		c.from.drop()
		return
	}
	c.bury(err)
}

func leave(batch []*candidate, err error) {
	for _, c := range batch {
		c.end(err)
	}
}

// committed moves the positions, and tells the world what has been stored. All that may be lost.
func (a *Admitter) committed(ctx context.Context, batch []*candidate, admitted []store.Admitted) {
	var runs []dispatch.Run
	var notices []dispatch.Delivery
	var fresh, duplicates int64
	for _, c := range batch {
		c.from.position.Store(int64(c.Seq))
		if c.dead != nil {
			a.buried(ctx, c)
			continue
		}
		res := admitted[0]
		admitted = admitted[1:]
		c.end(nil)
		if res.Duplicate {
			duplicates++
			continue
		}
		fresh++
		a.tell(c, res)
		if res.Created {
			runs = append(runs, c.run(res))
		}
		if res.OutSeq > 0 && !c.row.Notice.Read {
			notices = append(notices, c.notice(res))
		}
	}
	a.metrics.admitted.Add(ctx, fresh)
	a.metrics.duplicates.Add(ctx, duplicates)
	a.Doorbells.Ring(ctx, runs, notices)
}

func (a *Admitter) buried(ctx context.Context, c *candidate) {
	a.metrics.dead.Add(ctx, 1)
	a.Logger.ErrorContext(ctx, "message parked as dead letter",
		"msg_uid", c.dead.Ref, "partition", c.from.partition, "err", c.dead.Reason)
	c.end(errors.New(c.dead.Reason))
}

// tell emits what became of a message. Notices that somebody delivers are completed by egress.
func (a *Admitter) tell(c *candidate, res store.Admitted) {
	switch {
	case res.Created:
		ev := c.lifecycle(event.ProcessingStarted)
		ev.RunID, ev.Gen = res.RunID.String(), res.Gen
		a.Events.Emit(ev)
	case c.row.WantsRun:
		a.Events.Emit(c.lifecycle(event.MessagePending))
	case res.OutSeq > 0 && c.row.Notice.Read:
		ev := c.lifecycle(event.ProcessingCompleted)
		ev.OutSeq, ev.Outcome = res.OutSeq, "done"
		a.Events.Emit(ev)
	}
}

func (c *candidate) lifecycle(t event.Type) event.Lifecycle {
	m := c.event
	return event.Lifecycle{Type: t, Tenant: m.Tenant, SKey: m.SKey, MsgUID: m.UID, Profile: m.Profile, Address: m.ReplyTo}
}

func (c *candidate) run(res store.Admitted) dispatch.Run {
	return dispatch.Run{SKey: c.row.SKey, Class: c.row.RunClass, Gen: res.Gen, RunID: res.RunID, Traceparent: c.traceparent}
}

func (c *candidate) notice(res store.Admitted) dispatch.Delivery {
	return dispatch.Delivery{SKey: c.row.SKey, Platform: c.row.Notice.Platform, OutSeq: res.OutSeq, Traceparent: c.traceparent}
}
