package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

// groupOperate holds what people on call do.
const groupOperate = "operate"

// remote says which API a command talks to.
type remote struct{ url, key string }

func (r *remote) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&r.url, "url", defaultURL, "address of the API")
	cmd.PersistentFlags().StringVar(&r.key, "key", "", "bearer key, as env:NAME or file:PATH")
}

func (r *remote) client() (*client.Client, error) {
	secret, err := config.NewSecret(r.key)
	if err != nil {
		return nil, fmt.Errorf("%w: --key: %w", errUsage, err)
	}
	token, err := secret.Value()
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	return client.New(r.url, token), nil
}

// request is one request of the operator API and how its answer reads in a terminal.
type request struct {
	method, path string
	body         any
	text         func(answer json.RawMessage) (string, error)
}

func (e *env) operate(cmd *cobra.Command, r *remote, req request) error {
	c, err := r.client()
	if err != nil {
		return err
	}
	answer, err := c.Operate(cmd.Context(), req.method, req.path, req.body)
	if err != nil {
		return err
	}
	if e.output == "json" {
		return e.print("", answer)
	}
	text, err := req.text(answer)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return e.print(text, nil)
}

// said answers with a fixed text.
func said(text string) func(json.RawMessage) (string, error) {
	return func(json.RawMessage) (string, error) { return text, nil }
}

// table reads the list named member of an answer and prints a line per element under head; without elements it says
// none.
func table[T any](member, none string, head []string, line func(T) []any) func(json.RawMessage) (string, error) {
	return func(answer json.RawMessage) (string, error) {
		var lists map[string]json.RawMessage
		if err := json.Unmarshal(answer, &lists); err != nil {
			return "", err
		}
		var rows []T
		if err := json.Unmarshal(lists[member], &rows); err != nil {
			return "", err
		}
		if len(rows) == 0 {
			return none, nil
		}
		text, err := columns(head, rows, line)
		if next := lists["next"]; err == nil && len(next) > 0 && string(next) != "null" {
			text += "\n(more: the next page begins behind " + strings.Trim(string(next), `"`) + ")"
		}
		return text, err
	}
}

func columns[T any](head []string, rows []T, line func(T) []any) (string, error) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, row := range rows {
		cells := line(row)
		for i := range cells {
			if err == nil {
				_, err = fmt.Fprint(w, cells[i], "\t")
			}
		}
		if err == nil {
			_, err = fmt.Fprintln(w)
		}
	}
	if err == nil {
		err = w.Flush()
	}
	return strings.TrimRight(b.String(), "\n"), err
}

// indented shows the whole answer.
func indented(answer json.RawMessage) (string, error) {
	var b bytes.Buffer
	err := json.Indent(&b, bytes.TrimSpace(answer), "", "  ")
	return b.String(), err
}

// orDash is a value that may be missing.
func orDash(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return *s
}

// group returns a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, GroupID: groupOperate, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// one wants exactly one argument, which it names in the error.
func one(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return fmt.Errorf("%w: %s needs one %s", errUsage, cmd.CommandPath(), name)
	}
}

// act returns a command that does one thing to what its argument names.
func (e *env) act(r *remote, use, short, name string, req func(id string) request) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: one(name),
		RunE: func(cmd *cobra.Command, args []string) error { return e.operate(cmd, r, req(args[0])) },
	}
}

func post(path string, body any, text func(json.RawMessage) (string, error)) request {
	return request{method: http.MethodPost, path: path, body: body, text: text}
}

func get(path string, text func(json.RawMessage) (string, error)) request {
	return request{method: http.MethodGet, path: path, text: text}
}
