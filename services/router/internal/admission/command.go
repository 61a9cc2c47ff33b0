package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Commands that admission answers by itself. They never reach the model.
const (
	commandStatus = "status"
	commandHelp   = "help"
)

func (c *candidate) asksStatus() bool {
	return c.event != nil && c.event.Kind == event.KindCommand && c.event.Command.Name == commandStatus
}

// answer adds the notices of the commands in a batch. It may be repeated.
func (a *Admitter) answer(ctx context.Context, batch []*candidate) error {
	for _, c := range batch {
		if c.dead != nil || c.event.Kind != event.KindCommand || c.row.Notice != nil {
			continue
		}
		text, err := a.reply(ctx, c.event)
		if err != nil {
			return err
		}
		c.row.Notice = notice(c.event, text)
	}
	return nil
}

func (a *Admitter) reply(ctx context.Context, m *event.Message) (string, error) {
	switch m.Command.Name {
	case commandStatus:
		s, err := a.status(ctx, m)
		return s.text(), err
	case commandHelp:
		return helpText, nil
	default:
		return unknownText(m.Command.Name), nil
	}
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
	}
	s.since = s.session.QueuedAt
	if s.session.State != store.Running || s.session.RunID == uuid.Nil {
		return s, nil
	}
	run, err := a.Store.Run(ctx, s.session.RunID)
	switch {
	case errors.Is(err, store.ErrNotFound): // an old run that retention removed
	case err != nil:
		return s, fmt.Errorf("read run for /status: %w", err)
	case !run.StartedAt.IsZero():
		s.since = run.StartedAt
	}
	return s, nil
}

func notice(m *event.Message, text string) *store.NewReply {
	target, err := json.Marshal(m.ReplyTo)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return &store.NewReply{
		DKey:     m.UID + ":" + string(store.KindCommand),
		Platform: m.ReplyTo.Platform,
		Target:   target,
		Parts:    channel.EncodeParts(channel.Part{Markdown: text, Notice: true}),
		Read:     m.ReplyTo.Read(),
	}
}
