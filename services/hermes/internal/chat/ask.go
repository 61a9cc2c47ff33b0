// Package chat talks to a session in a terminal: one question, lines from a pipe, or interactively.
package chat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

// ErrRun: the run ended without an answer; the reason has been shown.
var ErrRun = errors.New("the run did not end with an answer")

// Conversation is one session at one server.
type Conversation struct {
	Client  *client.Client
	Session string
}

// Ask sends text, calls handle for each event and returns the last.
func (c Conversation) Ask(ctx context.Context, text string, handle func(client.Event)) (client.Event, error) {
	var last client.Event
	err := c.Client.Ask(ctx, c.Session, text, func(e client.Event) {
		last = e
		handle(e)
	})
	return last, err
}

// Once asks one question: the answer goes to out, tool progress to progress.
func (c Conversation) Once(ctx context.Context, text string, out, progress io.Writer) (client.Event, error) {
	p := &printer{out: out, progress: progress}
	last, err := c.Ask(ctx, text, p.event)
	if err != nil {
		return last, err
	}
	return last, p.finish(last)
}

// Lines asks each non-empty line of in as a question of its own, until its end.
func (c Conversation) Lines(ctx context.Context, in io.Reader, out, progress io.Writer) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		text := strings.TrimSpace(scanner.Text())
		if text == "" {
			continue
		}
		if _, err := c.Once(ctx, text, out, progress); err != nil {
			return err
		}
	}
	return scanner.Err()
}

// printer writes an answer as it arrives. What was shown is the answer only if the committed text begins with it.
type printer struct {
	out, progress io.Writer
	shown         strings.Builder
	err           error
}

func (p *printer) event(e client.Event) {
	switch e.Kind {
	case client.Text:
		p.shown.WriteString(e.Text)
		p.write(p.out, e.Text)
	case client.Step, client.Reset:
		p.breakLine()
	case client.ToolStarted:
		p.breakLine()
		p.write(p.progress, "  ▸ "+e.Tool+"\n")
	case client.ToolFinished:
		p.write(p.progress, "  ✓ "+e.Tool+" "+e.Outcome+"\n")
	default:
	}
}

func (p *printer) breakLine() {
	if p.shown.Len() > 0 {
		p.write(p.out, "\n")
	}
	p.shown.Reset()
}

// finish completes what was shown to the committed text.
func (p *printer) finish(last client.Event) error {
	rest, ok := strings.CutPrefix(last.Text, p.shown.String())
	if !ok {
		p.breakLine()
		rest = last.Text
	}
	p.write(p.out, rest+"\n")
	if last.Kind != client.Done {
		return errors.Join(fmt.Errorf("%w: %s", ErrRun, last.Kind), p.err)
	}
	return p.err
}

func (p *printer) write(w io.Writer, text string) {
	if _, err := io.WriteString(w, text); err != nil && p.err == nil {
		p.err = err
	}
}
