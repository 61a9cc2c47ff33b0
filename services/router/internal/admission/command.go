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

// stopCommand is the name of the command whose meaning depends on what is collected.
const stopCommand = "stop"

func commands() []command {
	return []command{
		{
			name: stopCommand, aliases: []string{"cancel"},
			help:      "end the current answer; messages that wait come next, `/stop all` drops them as well",
			treatment: treatment{apply: (*Admitter).stop},
		},
		{
			name: "new", aliases: []string{"reset"},
			help:      "begin a new conversation; the current answer and messages that wait are dropped",
			treatment: treatment{reads: true, apply: (*Admitter).reset},
		},
		{
			name: "resume", help: "take up an earlier conversation again: a list, or `/resume` and a number",
			treatment: treatment{reads: true, apply: (*Admitter).resume},
		},
		{
			name: "queue", help: "and a text: answer it after what is going on",
			treatment: treatment{apply: (*Admitter).emptyPolicy},
		},
		{
			name: "steer", help: "and a text: bring it into the answer that is going on",
			treatment: treatment{apply: (*Admitter).emptyPolicy},
		},
		{
			name: "interrupt", help: "and a text: end what is going on and answer this instead",
			treatment: treatment{apply: (*Admitter).emptyPolicy},
		},
		{
			name: "approve", help: "say yes to what I ask",
			treatment: treatment{reads: true, apply: (*Admitter).answerByCommand},
		},
		{
			name: "deny", help: "say no to it, with a reason if you like",
			treatment: treatment{reads: true, apply: (*Admitter).answerByCommand},
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

// commandTreatment is that of a command by its name. collects: the session may be waiting for more messages, which belong
// to an answer that has not begun.
func commandTreatment(name string, collects bool) treatment {
	for _, c := range commands() {
		if c.name == name || slices.Contains(c.aliases, name) {
			if c.name == stopCommand && collects {
				return treatment{reads: true, apply: (*Admitter).stopCollecting}
			}
			return c.treatment
		}
	}
	return treatment{apply: (*Admitter).unknown}
}

// emptyPolicy answers a command that should have had a text; with one it is a message.
func (a *Admitter) emptyPolicy(_ context.Context, c *candidate) error {
	c.reply(emptyPolicyText(c.event.Command.Name))
	return nil
}

// answerByCommand answers the open question.
func (a *Admitter) answerByCommand(ctx context.Context, c *candidate) error {
	if err := a.answerQuestion(ctx, c); err != nil || c.row.Wakes {
		return err
	}
	c.row.Kind = store.KindCommand
	c.reply(noQuestionText)
	return nil
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

// stopCollecting is a stop of messages that are being collected, without a run that could be stopped: they are covered by
// a cancelled one, and the conversation goes on. Otherwise it is any stop. If the window ends before the row is stored, the
// run that was made of it is fenced off.
func (a *Admitter) stopCollecting(ctx context.Context, c *candidate) error {
	s, err := a.Store.Session(ctx, c.event.SKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return a.stop(ctx, c)
	case err != nil:
		return fmt.Errorf("read session: %w", err)
	case !collecting(s):
		return a.stop(ctx, c)
	}
	_, dropped, err := a.behind(ctx, s)
	if err != nil {
		return err
	}
	c.row.Kind, c.row.EndsCollect = store.KindStop, false
	c.row.Reset, c.row.Resume, c.row.SessionID = true, &store.Resumption{}, s.SessionID
	c.reply(inbox.StoppedText(0, dropped))
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
	return a.behind(ctx, s)
}

// behind is unanswered for a session that was read.
func (a *Admitter) behind(ctx context.Context, s store.Session) (running bool, waiting int, err error) {
	taken, _, err := inbox.Current(ctx, a.Store, s)
	if err != nil {
		return false, 0, err
	}
	if s.RunID == uuid.Nil { // what the next run would answer waits as well
		return false, len(taken.Prompt) + len(taken.Waiting), nil
	}
	return true, len(taken.Waiting), nil
}
