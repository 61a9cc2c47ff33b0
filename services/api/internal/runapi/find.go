package runapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// errNotAdmitted: the store does not know the message, yet or at all.
var errNotAdmitted = errors.New("message is not admitted")

// find returns the target that id names, once the store has confirmed that who may see it. What belongs to somebody else
// is not found. A message that is not admitted is errNotAdmitted.
func (d Deps) find(ctx context.Context, who auth.Principal, id string) (Target, error) {
	if skey, uid, ok := accept.ParseMessageID(id); ok {
		return d.findMessage(ctx, who, Target{SKey: skey, UID: uid})
	}
	runID, err := uuid.Parse(id)
	if err != nil || runID.String() != id { // other notations name no run
		return Target{}, httpapi.NotFound("run")
	}
	run, err := d.Store.Run(ctx, runID)
	if errors.Is(err, store.ErrNotFound) {
		return Target{}, httpapi.NotFound("run")
	}
	if err != nil {
		return Target{}, fmt.Errorf("find run: %w", err)
	}
	return Target{SKey: run.SKey, RunID: runID}, d.checkTenant(ctx, who, run.SKey)
}

func (d Deps) findMessage(ctx context.Context, who auth.Principal, t Target) (Target, error) {
	if err := d.checkTenant(ctx, who, t.SKey); err != nil {
		return Target{}, err
	}
	if _, err := d.Submission(ctx, t); err != nil {
		return Target{}, err
	}
	return t, nil
}

// checkTenant returns the 404 of a session that who may not see, and errNotAdmitted if there is no such session.
func (d Deps) checkTenant(ctx context.Context, who auth.Principal, skey string) error {
	s, err := d.Store.Session(ctx, skey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return errNotAdmitted
	case err != nil:
		return fmt.Errorf("find session: %w", err)
	case !who.Sees(s.Tenant):
		return httpapi.NotFound("run")
	default:
		return nil
	}
}

// Submission returns what became of the message t. It is store.ErrNotFound before the message is admitted.
func (d Deps) Submission(ctx context.Context, t Target) (store.Submission, error) {
	sub, err := d.Store.Submission(ctx, t.SKey, t.UID)
	if errors.Is(err, store.ErrNotFound) {
		return store.Submission{}, fmt.Errorf("%w: %w", errNotAdmitted, err)
	}
	if err != nil {
		return store.Submission{}, fmt.Errorf("find message: %w", err)
	}
	return sub, nil
}

// AwaitSubmission waits until the message t is admitted, whether the store answers meanwhile or not, or returns the
// cause of the end of ctx.
func (d Deps) AwaitSubmission(ctx context.Context, t Target) (sub store.Submission, err error) {
	err = poll(ctx, func() error {
		sub, err = d.Submission(ctx, t)
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return sub, err
}

// awaitTarget is find that gives a message some time to be admitted. Errors are those for clients.
func (d Deps) awaitTarget(ctx context.Context, who auth.Principal, id string) (t Target, err error) {
	waiting, cancel := context.WithTimeout(ctx, d.Timing.Admission)
	defer cancel()
	err = poll(waiting, func() error {
		t, err = d.find(ctx, who, id) // the last answer counts, so that it is not cut off
		return err
	})
	if ctx.Err() != nil {
		return Target{}, context.Cause(ctx)
	}
	return t, clientError(err)
}

const (
	firstPause = 5 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// poll repeats f, soon at first and then less often, while the message is not admitted or the store does not answer. It
// returns the last error when ctx ends.
func poll(ctx context.Context, f func() error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f()
		if !errors.Is(err, errNotAdmitted) && !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// clientError is what a client gets to see of err.
func clientError(err error) error {
	switch {
	case errors.Is(err, errNotAdmitted):
		e := httpapi.NotFound("message")
		e.Message += ": it is unknown or has not been admitted yet"
		return e
	case errors.Is(err, store.ErrUnavailable):
		return httpapi.Unavailable("store_unavailable", "the run cannot be read now")
	default:
		return err
	}
}
