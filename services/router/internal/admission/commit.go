package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/daemon"
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
			if !daemon.Sleep(ctx, delay.NextBackOff()) {
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
	if err := a.prepare(ctx, batch); err != nil {
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
	var after aftermath
	for _, c := range batch {
		c.from.position.Store(int64(c.Seq))
		switch {
		case c.dead != nil:
			after.letters = append(after.letters, a.buried(ctx, c))
		case c.ignored != "":
			a.ignore(ctx, c, c.ignored)
		default:
			a.stored(ctx, c, admitted[0], &after)
			admitted = admitted[1:]
		}
	}
	a.follow(ctx, &after)
}

// stored takes note of the store's answer to a message.
func (a *Admitter) stored(ctx context.Context, c *candidate, res store.Admitted, after *aftermath) {
	switch {
	case c.row.Edit != nil && !res.Edited:
		a.ignore(ctx, c, ignoredLate)
		return
	case c.row.Edit != nil: // the row has another text, and that is all
	case res.Duplicate:
		after.duplicates++
	default:
		after.add(c, res)
		a.tell(ctx, c, res)
		c.known.take(c, res)
	}
	c.end(nil)
}

func (a *Admitter) buried(ctx context.Context, c *candidate) dispatch.Letter {
	a.metrics.dead.Add(ctx, 1)
	a.Logger.ErrorContext(ctx, "message parked as dead letter",
		"msg_uid", c.dead.Ref, "partition", c.from.partition, "err", c.dead.Reason)
	c.end(errors.New(c.dead.Reason))
	letter := dispatch.Letter{ID: c.dead.ID, MsgUID: c.dead.Ref, Reason: c.dead.Reason}
	if c.event != nil {
		letter.Tenant, letter.SKey = c.event.Tenant, c.event.SKey
	}
	return letter
}
