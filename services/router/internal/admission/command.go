package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// command is a word that admission takes care of by itself. None ever reaches the model.
type command struct {
	name    string
	aliases []string
	help    string
	treatment
}

func commands() []command {
	return []command{
		{
			name: "stop", aliases: []string{"cancel"},
			help:      "end the current answer; messages that wait come next, `/stop all` drops them as well",
			treatment: treatment{apply: (*Admitter).stop},
		},
		{
			name: "new", aliases: []string{"reset"},
			help:      "begin a new conversation; the current answer and messages that wait are dropped",
			treatment: treatment{reads: true, apply: (*Admitter).reset},
		},
		{
			name: "status", help: "what this conversation is doing right now",
			treatment: treatment{reads: true, apply: (*Admitter).tellStatus},
		},
		{
			// Chat platforms send /start for a person who opens a bot for the first time.
			name: "help", aliases: []string{"start"}, help: "this list",
			treatment: treatment{apply: (*Admitter).help},
		},
	}
}

func commandTreatment(name string) treatment {
	for _, c := range commands() {
		if c.name == name || slices.Contains(c.aliases, name) {
			return c.treatment
		}
	}
	return treatment{apply: (*Admitter).unknown}
}

func (a *Admitter) help(_ context.Context, c *candidate) error {
	c.reply(helpText(commands()))
	return nil
}

func (a *Admitter) unknown(_ context.Context, c *candidate) error {
	c.reply(unknownText(c.event.Command.Name))
	return nil
}

func (a *Admitter) tellStatus(ctx context.Context, c *candidate) error {
	s, err := a.status(ctx, c.event)
	if err != nil {
		return err
	}
	c.reply(s.text())
	return nil
}

// stop ends the run that is current when the row is stored; whoever ends it confirms. The row says by its arguments
// whether it covers the messages that wait.
func (a *Admitter) stop(_ context.Context, c *candidate) error {
	c.row.Kind, c.row.Stop, c.row.Wakes = store.KindStop, true, true
	c.reply(nothingRunningText)
	c.row.NoticeIfIdle = true
	return nil
}

// reset fences the current run off and begins a new conversation under the fresh id of the row.
func (a *Admitter) reset(ctx context.Context, c *candidate) error {
	running, dropped, err := a.unanswered(ctx, c.event.SKey)
	if err != nil {
		return err
	}
	c.row.Reset = true
	c.reply(newConversationText(running, dropped))
	return nil
}

// unanswered tells whether a run is current and how many messages wait behind it.
func (a *Admitter) unanswered(ctx context.Context, skey string) (running bool, waiting int, err error) {
	s, err := a.Store.Session(ctx, skey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, 0, nil
	case err != nil:
		return false, 0, fmt.Errorf("read session: %w", err)
	}
	taken, _, err := inbox.Current(ctx, a.Store, s)
	if err != nil {
		return false, 0, err
	}
	if s.RunID == uuid.Nil { // what the next run would answer waits as well
		return false, len(taken.Prompt) + len(taken.Waiting), nil
	}
	return true, len(taken.Waiting), nil
}
