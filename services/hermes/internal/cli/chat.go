package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hermes-runtime/hermes/services/hermes/internal/chat"
	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

const defaultURL = "http://127.0.0.1:8080"

func newChat(e *env) *cobra.Command {
	var r remote
	var session string
	cmd := &cobra.Command{
		Use:   "chat [question]",
		Short: "Talk to an agent: interactively, one question, or lines from a pipe",
		Example: "  hermes chat\n  hermes chat \"what files are in the workspace?\"\n  echo hello | hermes chat\n" +
			"  hermes chat --url https://hermes.example.com --key env:API_KEY",
		Args: oneQuestion,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := r.client()
			if err != nil {
				return err
			}
			talk := chat.Conversation{Client: c, Session: session}
			return e.chat(cmd.Context(), talk, args)
		},
	}
	r.flags(cmd)
	cmd.Flags().StringVar(&session, "session", defaultSession(), "conversation: the same name goes on where it was")
	return cmd
}

func oneQuestion(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%w: put the question in quotes: hermes chat %q", errUsage, strings.Join(args, " "))
	}
	return nil
}

func (e *env) chat(ctx context.Context, talk chat.Conversation, args []string) error {
	switch {
	case len(args) == 1:
		return e.ask(ctx, talk, args[0])
	case isTerminal(e.in) && isTerminal(e.out):
		return talk.Interactive(ctx, e.in, e.out)
	default:
		return talk.Lines(ctx, e.in, e.out, e.err)
	}
}

// answer is the JSON form of one answer.
type answer struct {
	RunID string   `json:"run_id"`
	State string   `json:"state"`
	Text  string   `json:"text"`
	Tools []string `json:"tools"`
}

func (e *env) ask(ctx context.Context, talk chat.Conversation, question string) error {
	if e.output != "json" {
		_, err := talk.Once(ctx, question, e.out, e.err)
		return err
	}
	a := answer{Tools: []string{}}
	last, err := talk.Ask(ctx, question, func(ev client.Event) {
		if ev.Kind == client.ToolStarted {
			a.Tools = append(a.Tools, ev.Tool)
		}
		if ev.RunID != "" {
			a.RunID = ev.RunID
		}
	})
	if err != nil {
		return err
	}
	a.State, a.Text = string(last.Kind), last.Text
	if err := e.print("", a); err != nil {
		return err
	}
	if last.Kind != client.Done {
		return chat.ErrRun
	}
	return nil
}

// defaultSession is one conversation per person and machine.
func defaultSession() string {
	name := "me"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return "cli-" + name
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
