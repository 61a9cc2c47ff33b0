package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

const terminalConcurrency = 16

func terminalTool(box Sandbox) Tool {
	return Tool{
		Spec: tool.Spec{
			Name: "terminal",
			Description: "Run a command with /bin/sh in the workspace and return its output (standard output and error as they " +
				"come) and exit code. Files stay between calls; processes do not: everything the command started, also in the " +
				"background, ends with it. Standard input is empty. There is no network (use http_request), and only the " +
				"workspace can be written to.",
			Parameters: json.RawMessage(`{
				"type": "object",
				"properties": {
					"command": {"type": "string", "minLength": 1, "description": "Shell command, may have several lines."},
					"timeout_s": {"type": "number", "exclusiveMinimum": 0,
						"description": "Seconds after which the command is stopped. The server has a limit of its own."}
				},
				"required": ["command"],
				"additionalProperties": false
			}`),
			Effect: tool.Unsafe,
		},
		Concurrency: terminalConcurrency,
		Run:         terminal{box}.run,
	}
}

type terminal struct{ box Sandbox }

type terminalArguments struct {
	Command string   `json:"command"`
	Timeout *float64 `json:"timeout_s"`
}

// maxTimeout keeps the conversion to a duration in range; the call's own deadline is far below.
const maxTimeout = 24 * time.Hour

func (a terminalArguments) timeout() (time.Duration, error) {
	if a.Timeout == nil {
		return maxTimeout, nil
	}
	if *a.Timeout <= 0 {
		return 0, errors.New("argument timeout_s: must be positive")
	}
	return time.Duration(min(*a.Timeout, maxTimeout.Seconds()) * float64(time.Second)), nil
}

func (t terminal) run(ctx context.Context, call Call) (Result, error) {
	var args terminalArguments
	if err := decode(call.Arguments, &args); err != nil {
		return result(tool.Error, err.Error()), nil
	}
	if args.Command == "" {
		return result(tool.Error, "argument command: must not be empty"), nil
	}
	timeout, err := args.timeout()
	if err != nil {
		return result(tool.Error, err.Error()), nil
	}
	return t.execute(ctx, call, args.Command, timeout)
}

func (t terminal) execute(ctx context.Context, call Call, command string, timeout time.Duration) (Result, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := NewOutput(call.OutputBytes)
	shown := startProgress(call.Progress, call.OutputBytes)
	begin := time.Now()
	exit, err := t.box.Command(limited, call.Dir, command, io.MultiWriter(out, shown))
	shown.stop()
	switch {
	case err == nil:
		return exited(out, exit), nil
	case errors.Is(ctx.Err(), context.Canceled):
		return Result{}, err
	case errors.Is(err, context.DeadlineExceeded):
		return out.Result(tool.Timeout, fmt.Sprintf("[stopped after %s: time is up]", rounded(time.Since(begin)))), nil
	default:
		return refused(err)
	}
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

func exited(out *Output, exit sandbox.Exit) Result {
	switch {
	case exit.Signal != "":
		return out.Result(tool.Error, fmt.Sprintf("[killed by %s]", exit.Signal))
	case exit.Code != 0:
		return out.Result(tool.Error, fmt.Sprintf("[exit code %d]", exit.Code))
	default:
		return out.Result(tool.OK, "[exit code 0]")
	}
}

// refused is the result of an operation that says no; other errors are ours.
func refused(err error) (Result, error) {
	if refusal, ok := errors.AsType[*sandbox.Refusal](err); ok {
		return result(tool.Error, refusal.Reason), nil
	}
	return Result{}, err
}
