package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// status is what /status shows. The zero session stands for a conversation that has not begun.
type status struct {
	profile string
	session store.Session
	since   time.Time
	// waiting counts the messages behind the one that is being answered.
	waiting int
}

// status reads the session as it is before the command is admitted.
func (a *Admitter) status(ctx context.Context, m *event.Message) (status, error) {
	s := status{profile: m.Profile}
	var err error
	s.session, err = a.Store.Session(ctx, m.SKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return status{profile: m.Profile}, nil
	case err != nil:
		return s, fmt.Errorf("read session for /status: %w", err)
	case s.session.RunID == uuid.Nil:
		return s, nil
	}
	taken, _, err := inbox.Current(ctx, a.Store, s.session)
	if err != nil {
		return s, fmt.Errorf("count messages for /status: %w", err)
	}
	s.waiting = len(taken.Waiting)
	s.since, err = a.since(ctx, s.session)
	return s, err
}

// since is the time at which the current run was queued or, once it runs, at which it began.
func (a *Admitter) since(ctx context.Context, s store.Session) (time.Time, error) {
	if s.State != store.Running {
		return s.QueuedAt, nil
	}
	run, err := a.Store.Run(ctx, s.RunID)
	switch {
	case errors.Is(err, store.ErrNotFound): // an old run that retention removed
		return s.QueuedAt, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("read run for /status: %w", err)
	case run.StartedAt.IsZero():
		return s.QueuedAt, nil
	}
	return run.StartedAt, nil
}

func (s status) text() string {
	return fmt.Sprintf("%s\n\nConversation: %s · Profile: %s", s.doing(), conversation(s.session.SessionID), s.profile)
}

func (s status) doing() string {
	switch s.session.State {
	case store.Running:
		return "Answering since " + clock(s.since) + s.behind() + "."
	case store.Queued:
		return "Waiting for a free worker since " + clock(s.since) + s.behind() + "."
	case store.Waiting:
		return "Waiting for an approval" + s.behind() + "."
	case store.Paused:
		return "Paused by an operator; messages are kept."
	case store.Idle:
		return "Idle: nothing is running and nothing waits."
	default:
		return "No messages yet."
	}
}

func (s status) behind() string {
	switch s.waiting {
	case 0:
		return ""
	case 1:
		return ", 1 message waiting"
	default:
		return fmt.Sprintf(", %d messages waiting", s.waiting)
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// conversation is the end of the id: the beginning of a UUIDv7 is a time and much the same for all of them.
func conversation(id uuid.UUID) string {
	if id == uuid.Nil {
		return "new"
	}
	text := id.String()
	return text[len(text)-8:]
}
