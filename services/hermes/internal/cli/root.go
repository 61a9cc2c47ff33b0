// Package cli is the command line: one file per command.
//
// Exit codes: 0 done, 1 failed, 2 usage, 3 not reachable.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/process"
	"github.com/hermes-runtime/hermes/services/internal/version"
)

// errUsage marks errors in how a command was called.
var errUsage = errors.New("usage")

// env is what every command shares.
type env struct {
	in       io.Reader
	out, err io.Writer
	output   string
}

// Main runs the command that args name and returns the exit code. SIGINT and SIGTERM end it in order; a second one ends
// the process at once.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root := newRoot(&env{in: in, out: out, err: errOut})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintf(errOut, "hermes: %v\n", err) // the exit code stands even where nobody reads this
	}
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return process.ExitDone
	case errors.Is(err, errUsage):
		return process.ExitUsage
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, backends.ErrUnreachable), errors.Is(err, store.ErrUnavailable):
		return process.ExitUnreachable
	default:
		return process.ExitFailed
	}
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "hermes",
		Short:         "The runtime that keeps LLM agents alive",
		Long:          "Hermes keeps LLM agents alive behind chats, webhooks, an HTTP API and this terminal.\nStart with: hermes dev",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if e.output != "text" && e.output != "json" {
				return fmt.Errorf("%w: --output %q is neither text nor json", errUsage, e.output)
			}
			return nil
		},
	}
	root.SetIn(e.in)
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.PersistentFlags().StringVarP(&e.output, "output", "o", "text", "text or json")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.AddGroup(&cobra.Group{ID: groupOperate, Title: "Operate (needs a key with the role admin):"})
	root.AddCommand(newDev(e), newChat(e), newMigrate(e), newConfig(e), newVersion(e))
	root.AddCommand(newSession(e), newRun(e), newWorker(e), newPartition(e), newDeadLetter(e))
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// noArgs refuses arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %q: no such command or argument of %q, see %s --help", errUsage, args[0], cmd.CommandPath(), cmd.CommandPath())
}

// print writes text, or value as one line of JSON with --output json.
func (e *env) print(text string, value any) error {
	if e.output == "json" {
		return json.NewEncoder(e.out).Encode(value)
	}
	_, err := fmt.Fprintln(e.out, text)
	return err
}

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version.Get()
			text := fmt.Sprintf("hermes %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
			return e.print(text, v)
		},
	}
}
