package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	// collected counts the messages of a turn that has not begun, waiting those behind the one that is being answered.
	collected, waiting int
	// worker is the sign of life of the worker that answers.
	worker sign
}

// sign is when a worker was last heard of: at, silent ago. The zero value says nothing, one without a time: never.
type sign struct {
	known  bool
	at     time.Time
	silent time.Duration
}

// workerDead is the silence after which a worker is given up, see docs/architecture.md.
const workerDead = 15 * time.Second

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
	case s.session.RunID == uuid.Nil && !collecting(s.session):
		return s, nil
	}
	taken, _, err := inbox.Current(ctx, a.Store, s.session)
	if err != nil {
		return s, fmt.Errorf("count messages for /status: %w", err)
	}
	s.collected, s.waiting = len(taken.Prompt), len(taken.Waiting)
	if s.since, err = a.since(ctx, s.session); err != nil {
		return s, err
	}
	s.worker, err = a.heard(ctx, s.session)
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

// heard is the sign of life of the worker that owns a session.
func (a *Admitter) heard(ctx context.Context, s store.Session) (sign, error) {
	if s.State != store.Running {
		return sign{}, nil
	}
	all, err := a.Store.Workers(ctx)
	if err != nil {
		return sign{}, fmt.Errorf("read workers for /status: %w", err)
	}
	id, _, _ := strings.Cut(s.Owner, "/")
	i := slices.IndexFunc(all, func(w store.WorkerState) bool { return w.WorkerID == id })
	if i < 0 {
		return sign{known: true}, nil
	}
	return sign{known: true, at: a.now().Add(-all[i].Silent), silent: all[i].Silent}, nil
}

func (s status) text() string {
	return fmt.Sprintf("%s\n\nConversation: %s · Profile: %s", s.doing(), conversation(s.session.SessionID), s.profile)
}

func (s status) doing() string {
	switch s.session.State {
	case store.Running:
		return "Answering since " + clock(s.since) + s.behind() + "." + s.worker.text()
	case store.Queued:
		return "Waiting for a free worker since " + clock(s.since) + s.behind() + "."
	case store.Waiting:
		return s.awaited() + s.behind() + "."
	case store.Paused:
		return "Paused by an operator; messages are kept."
	case store.Idle:
		return "Idle: nothing is running and nothing waits."
	default:
		return "No messages yet."
	}
}

// awaited says what a waiting session waits for. A window is over with the command that asks.
func (s status) awaited() string {
	switch s.session.WaitKind {
	case store.WaitQuestion:
		return "Waiting for your answer to a question"
	case store.WaitTimer:
		return "Waiting until " + clock(s.session.WakeAt)
	case store.WaitCollect:
		return fmt.Sprintf("Collecting since %s: the answer to %s begins now", clock(s.since), messages(s.collected))
	case store.WaitApproval:
		return "Waiting for an approval"
	default: // of a newer version
		return "Waiting"
	}
}

func (s status) behind() string {
	if s.waiting == 0 {
		return ""
	}
	return ", " + messages(s.waiting) + " waiting"
}

// text is a sentence behind another. A worker reports every few seconds, so some silence is nothing to worry about; it is
// told nevertheless, because only the reader knows how long the answer should take.
func (w sign) text() string {
	switch {
	case !w.known:
		return ""
	case w.at.IsZero():
		return " Its worker has never been heard of."
	case w.silent >= workerDead:
		return fmt.Sprintf(" Its worker has been silent since %s: another one takes over.", clock(w.at))
	default:
		return fmt.Sprintf(" Its worker was last heard of at %s, %s ago.", clock(w.at), w.silent.Truncate(time.Second))
	}
}

func messages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
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
