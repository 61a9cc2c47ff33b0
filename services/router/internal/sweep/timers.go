package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/timer"
)

// fireTimers is rule (g): a due timer becomes a message of its session. The message goes first, under an id that two
// routers make alike; then the timer moves on, once. Fires that were missed are one.
func (s *Sweeper) fireTimers(ctx context.Context, owned []int) (fired int, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	due, err := s.Store.DueTimers(call, owned, pageSize)
	if err != nil {
		return 0, err
	}
	for _, t := range due {
		moved, err := s.fire(ctx, t)
		if err != nil { // the broker or the store: the others would wait for it as well
			return fired, fmt.Errorf("timer %s: %w", t.ID, err)
		}
		if moved {
			fired++
		}
	}
	return fired, nil
}

// fire reports whether it was this router that has moved the timer on.
func (s *Sweeper) fire(ctx context.Context, t store.Timer) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	next, data, uid, err := firing(t, time.Now())
	if err == nil {
		_, err = s.Bus.Publish(ctx, bus.Msg{Subject: bus.IngestSubject(t.Tenant, t.SKey), ID: uid, Data: data})
		if err != nil && !errors.Is(err, bus.ErrTooLarge) {
			return false, err
		}
	}
	if err != nil { // it can never fire: it goes, or it would be due for ever
		s.Logger.ErrorContext(ctx, "sweep: timer dropped", "skey", t.SKey, "timer", t.ID, "err", err)
		next = time.Time{}
	}
	return s.Store.MoveTimer(ctx, t.ID, t.NextAt, next)
}

// firing is the message of a due timer, and when it fires again. The store's clock says what is due: ours may be slow, and
// must not choose the same time again.
func firing(t store.Timer, now time.Time) (next time.Time, data []byte, uid string, err error) {
	after := now
	if t.NextAt.After(now) {
		after = t.NextAt
	}
	if next, err = timer.Next(t.Spec, after); err != nil {
		return time.Time{}, nil, "", err
	}
	data, uid, err = timer.Message(t, now)
	return next, data, uid, err
}
