// Package builtin holds the tools that come with toolexec: files, terminal, HTTP and the time.
//
// Descriptions and parameter schemas are written for a model, and so is every error text: what is wrong, with which
// argument, relative to the workspace. File tools are split in two: the server side here starts a sandboxed process, and
// the [Operations] run in it.
package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

// Call is one call of a tool, its envelope checked.
type Call struct {
	// Dir is the workspace of the session.
	Dir string
	// Arguments is a JSON object; the tool checks what is in it.
	Arguments json.RawMessage
	// OutputBytes is the longest content of the result.
	OutputBytes int
	// Progress shows output as it comes, from one goroutine at a time and never after Run has returned.
	Progress func(text string)
}

// Result is what the model observes, and the workspace files that changed.
type Result struct {
	tool.Result
	Changed []string
}

// Tool is a tool and how to run it.
type Tool struct {
	Spec tool.Spec
	// Concurrency is how many calls run at once; the others wait.
	Concurrency int
	// Run calls the tool. Its error is a failure of this server or, once ctx was cancelled, the cause: everything else,
	// a passed deadline too, is a Result. When Run returns nothing of the call is left running.
	Run func(ctx context.Context, call Call) (Result, error)
}

// Sandbox runs what must not run in this process.
type Sandbox interface {
	Command(ctx context.Context, dir, command string, out io.Writer) (sandbox.Exit, error)
	Operate(ctx context.Context, dir string, op sandbox.OperationCall, out io.Writer) (changed []string, err error)
}

// Tools returns every tool, sorted by name.
func Tools(box Sandbox, web Web) []Tool {
	return []Tool{
		currentTimeTool(),
		httpRequestTool(web),
		listFilesTool(box),
		readFileTool(box),
		searchFilesTool(box),
		terminalTool(box),
		writeFileTool(box),
	}
}

func result(outcome tool.Outcome, text string) Result {
	return Result{Result: tool.Result{Outcome: outcome, Content: text, FullSize: int64(len(text))}}
}

func resultf(outcome tool.Outcome, format string, args ...any) Result {
	return result(outcome, fmt.Sprintf(format, args...))
}

// decode reads arguments strictly: an argument that does not exist is a misunderstanding that the model should hear of.
func decode(arguments json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("argument %s: %s is not a %s", wrong.Field, wrong.Value, jsonType(wrong.Type))
	}
	if err != nil {
		return fmt.Errorf("arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// jsonType names a Go type as a model knows it.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Float64:
		return "number"
	case reflect.Map, reflect.Struct:
		return "object"
	default:
		return "string"
	}
}
