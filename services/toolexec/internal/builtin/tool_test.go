package builtin

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

func TestTools_FormAValidRegistry(t *testing.T) {
	t.Parallel()
	var specs []tool.Spec
	effects := map[string]tool.Effect{}
	for _, b := range Tools(fakeSandbox{}, Web{}) {
		require.Positive(t, b.Concurrency, b.Spec.Name)
		specs = append(specs, b.Spec)
		effects[b.Spec.Name] = b.Spec.Effect
	}
	registry, err := tool.NewRegistry(specs...)
	require.NoError(t, err)
	require.Len(t, registry.Names(), len(specs))
	require.True(t, slices.IsSortedFunc(specs, func(a, b tool.Spec) int { return strings.Compare(a.Name, b.Name) }))
	require.Equal(t, map[string]tool.Effect{
		"current_time": tool.Read, "http_request": tool.Unsafe, "list_files": tool.Read, "read_file": tool.Read,
		"search_files": tool.Read, "terminal": tool.Unsafe, "write_file": tool.Idempotent,
	}, effects)
}

func TestOperations_BelongToTools(t *testing.T) {
	t.Parallel()
	for name, op := range Operations() {
		i := slices.IndexFunc(Tools(fakeSandbox{}, Web{}), func(b Tool) bool { return b.Spec.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		spec := Tools(fakeSandbox{}, Web{})[i].Spec
		require.Equal(t, []string{"path"}, spec.PathArguments)
		require.Equal(t, spec.Effect != tool.Read, op.Writes, name)
	}
}

func TestCurrentTime_KnowsZonesAndWeekdays(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 22, 30, 0, 0, time.UTC)
	for arguments, want := range map[string]string{
		`{}`:                              "Monday, 2026-11-30T22:30:00Z (UTC)",
		`{"timezone":"Europe/Berlin"}`:    "Monday, 2026-11-30T23:30:00+01:00 (CET)",
		`{"timezone":"Asia/Shanghai"}`:    "Tuesday, 2026-12-01T06:30:00+08:00 (CST)",
		`{"timezone":"America/New_York"}`: "Monday, 2026-11-30T17:30:00-05:00 (EST)",
	} {
		r := currentTime([]byte(arguments), now)
		require.Equal(t, tool.OK, r.Outcome)
		require.Equal(t, want, r.Content)
	}
	for _, zone := range []string{"Mars/Base", "Local", "../etc/passwd"} {
		r := currentTime([]byte(`{"timezone":"`+zone+`"}`), now)
		require.Equal(t, tool.Error, r.Outcome)
		require.Contains(t, r.Content, "is not an IANA time zone name")
	}
}

func TestTerminal_TimeoutOfTheArgumentsStopsTheCommand(t *testing.T) {
	t.Parallel()
	box := fakeSandbox{command: func(ctx context.Context, out io.Writer) (sandbox.Exit, error) {
		_, _ = io.WriteString(out, "so far")
		<-ctx.Done()
		return sandbox.Exit{}, context.Cause(ctx)
	}}
	r, err := terminal{box}.run(t.Context(), newCall(`{"command":"x","timeout_s":0.05}`))
	require.NoError(t, err)
	require.Equal(t, tool.Timeout, r.Outcome)
	require.Regexp(t, `^so far\n\[stopped after [0-9.]+m?s: time is up\]$`, r.Content)
}

func TestTerminal_NamesTheSignalOrCode(t *testing.T) {
	t.Parallel()
	for want, exit := range map[string]sandbox.Exit{
		"[exit code 0]":       {},
		"[exit code 7]":       {Code: 7},
		"[killed by SIGXCPU]": {Code: 152, Signal: "SIGXCPU"},
	} {
		box := fakeSandbox{command: func(context.Context, io.Writer) (sandbox.Exit, error) { return exit, nil }}
		r, err := terminal{box}.run(t.Context(), newCall(`{"command":"x"}`))
		require.NoError(t, err)
		require.Equal(t, want, r.Content)
		require.Equal(t, exit.Code == 0, r.Outcome == tool.OK)
	}
}

func TestTerminal_RefusesBadArguments(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		`{}`:                               "argument command: must not be empty",
		`{"command":"x","timeout_s":0}`:    "argument timeout_s: must be positive",
		`{"command":"x","timeout_s":"5s"}`: "argument timeout_s: string is not a number",
	} {
		r, err := terminal{fakeSandbox{}}.run(t.Context(), newCall(arguments))
		require.NoError(t, err)
		require.Equal(t, tool.Error, r.Outcome)
		require.Equal(t, want, r.Content)
	}
}

func TestTools_TellRefusalsFromFaults(t *testing.T) {
	t.Parallel()
	refusal, fault := &sandbox.Refusal{Reason: "no"}, errors.New("kernel says no")
	for _, given := range []error{refusal, fault, context.Canceled} {
		box := fakeSandbox{
			command: func(context.Context, io.Writer) (sandbox.Exit, error) { return sandbox.Exit{}, given },
			operate: func(context.Context, io.Writer) ([]string, error) { return nil, given },
		}
		for _, b := range []Tool{terminalTool(box), readFileTool(box)} {
			r, err := b.Run(t.Context(), newCall(`{"command":"x"}`))
			if errors.Is(given, refusal) {
				require.NoError(t, err)
				require.Equal(t, tool.Error, r.Outcome)
				require.Equal(t, "no", r.Content)
				continue
			}
			require.ErrorIs(t, err, given, b.Spec.Name)
		}
	}
}
