package builtin

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSandbox answers without a process; the real one is used by the tests of the app.
type fakeSandbox struct {
	command func(ctx context.Context, out io.Writer) (sandbox.Exit, error)
	operate func(ctx context.Context, out io.Writer) ([]string, error)
}

func (f fakeSandbox) Command(ctx context.Context, _, _ string, out io.Writer) (sandbox.Exit, error) {
	return f.command(ctx, out)
}

func (f fakeSandbox) Operate(ctx context.Context, _ string, _ sandbox.OperationCall, out io.Writer) ([]string, error) {
	return f.operate(ctx, out)
}

func newCall(arguments string) Call {
	return Call{Arguments: json.RawMessage(arguments), OutputBytes: 4096, Progress: func(string) {}}
}
