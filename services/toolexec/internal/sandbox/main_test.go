package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if IsChild(os.Args) {
		os.Exit(RunChild(os.Args, testOperations()))
	}
	goleak.VerifyTestMain(m)
}

// testOperations try what a broken operation might do.
func testOperations() map[string]Operation {
	return map[string]Operation{
		"echo": {Run: func(_ *os.Root, call OperationCall, out io.Writer) ([]string, error) {
			_, err := out.Write(call.Arguments)
			return []string{"a.txt"}, err
		}},
		"refuse": {Run: func(*os.Root, OperationCall, io.Writer) ([]string, error) {
			return nil, errors.New("not like this")
		}},
		"read outside": {Run: func(*os.Root, OperationCall, io.Writer) ([]string, error) {
			_, err := os.ReadFile("/etc/passwd")
			return nil, err
		}},
		"write": {Run: func(root *os.Root, _ OperationCall, _ io.Writer) ([]string, error) {
			return nil, root.WriteFile("x", []byte("x"), 0o600)
		}},
		"write a lot": {Writes: true, Run: func(root *os.Root, _ OperationCall, _ io.Writer) ([]string, error) {
			return nil, root.WriteFile("x", make([]byte, 2<<20), 0o600)
		}},
		"allocate": {Run: func(_ *os.Root, _ OperationCall, out io.Writer) ([]string, error) {
			block := bytes.Repeat([]byte("x"), 2<<30)
			_, err := fmt.Fprint(out, len(block))
			return nil, err
		}},
		"hang": {Run: func(*os.Root, OperationCall, io.Writer) ([]string, error) { select {} }},
	}
}

func testLimits() Limits {
	l := DefaultLimits()
	l.Grace = 300 * time.Millisecond
	l.FileSize = 1 << 20
	return l
}

// detect returns the sandbox as New finds it here.
func detect(t *testing.T) *Sandbox {
	t.Helper()
	box, err := New(t.Context(), testLimits())
	require.NoError(t, err)
	return box
}

// everyWay runs a test with namespaces, where the machine permits them, and without, as in a container that forbids
// them.
func everyWay(t *testing.T, test func(t *testing.T, box *Sandbox)) {
	t.Helper()
	box := detect(t)
	ways := map[string]*Sandbox{"without namespaces": {limits: box.limits}}
	if box.namespaces {
		ways["with namespaces"] = box
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, way)
		})
	}
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// shell runs a command that must get as far as having an exit.
func shell(t *testing.T, box *Sandbox, dir, command string) (string, Exit) {
	t.Helper()
	var out bytes.Buffer
	exit, err := box.Command(withTimeout(t, time.Minute), dir, command, &out)
	require.NoError(t, err)
	return out.String(), exit
}
