package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// The modes of a job.
const (
	modeProbe     = "probe"
	modeCommand   = "command"
	modeOperation = "operation"
)

const (
	// childArg is the first argument of a child, confinedArg the second one of what a supervisor starts.
	childArg    = "tool-child"
	confinedArg = "confined"
	selfExe     = "/proc/self/exe"
	// reportFD carries the status of a child, or the error of a confined child.
	reportFD = 3
)

// job is what a child reads from its standard input.
type job struct {
	Mode       string        `json:"mode"`
	Dir        string        `json:"dir,omitempty"`
	Command    string        `json:"command,omitempty"`
	Operation  OperationCall `json:"operation,omitzero"`
	Limits     Limits        `json:"limits"`
	Namespaces bool          `json:"namespaces,omitempty"`
}

// status is what a child says last.
type status struct {
	// Fault is a sandbox that could not be set up, Refusal an operation that says no.
	Fault   string   `json:"fault,omitempty"`
	Refusal string   `json:"refusal,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Code    int      `json:"code,omitempty"`
	Signal  string   `json:"signal,omitempty"`
}

// OperationCall names an operation and what it is given.
type OperationCall struct {
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// OutputBytes is how much output makes sense.
	OutputBytes int `json:"output_bytes,omitempty"`
}

// Operation is work on the files of a workspace that the child does itself.
type Operation struct {
	// Writes says that the workspace may be changed.
	Writes bool
	// Run returns the files that it changed. Its error is text for the model. It must do all file access on the goroutine
	// that it is called on: that is the confined one.
	Run func(root *os.Root, call OperationCall, out io.Writer) (changed []string, err error)
}

// IsChild reports whether a process with these arguments is a tool process.
func IsChild(args []string) bool { return len(args) > 1 && args[1] == childArg }

// RunChild does the work of a tool process and returns its exit code.
func RunChild(args []string, operations map[string]Operation) int {
	// Capabilities and the parent-death signal belong to a thread: what a supervisor does stays on this one.
	runtime.LockOSThread()
	if len(args) > 2 && args[2] == confinedArg {
		return runConfined()
	}
	syscall.CloseOnExec(reportFD)
	report := os.NewFile(reportFD, "status")
	in := json.NewDecoder(os.Stdin)
	var j job
	if err := in.Decode(&j); err != nil {
		return 1 // the server is gone
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the server closes the pipe, or with it
	}()
	if err := json.NewEncoder(report).Encode(perform(j, stop, operations)); err != nil {
		return 1
	}
	return 0
}

func perform(j job, stop <-chan struct{}, operations map[string]Operation) status {
	switch j.Mode {
	case modeProbe:
		return status{}
	case modeCommand:
		return supervise(j, stop)
	default:
		return operateUntil(stop, j, operations)
	}
}

// operateUntil gives an operation up at stop; the exit of the process ends it.
func operateUntil(stop <-chan struct{}, j job, operations map[string]Operation) status {
	done := make(chan status, 1)
	go func() {
		// Landlock binds one thread: the operation must not leave it.
		runtime.LockOSThread()
		done <- operate(j, operations)
	}()
	select {
	case st := <-done:
		return st
	case <-stop:
		return status{Fault: "stopped"}
	}
}

// operate confines this thread and works on it.
func operate(j job, operations map[string]Operation) status {
	op, ok := operations[j.Operation.Name]
	if !ok {
		return status{Fault: fmt.Sprintf("no operation %q", j.Operation.Name)}
	}
	root, err := os.OpenRoot(j.Dir)
	if err != nil {
		return status{Fault: err.Error()}
	}
	// Their default would be a stack trace; ignored, a write fails and the hard CPU limit kills.
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGXCPU)
	if err := confineOperation(j, op.Writes); err != nil {
		return status{Fault: err.Error()}
	}
	changed, err := op.Run(root, j.Operation, os.Stdout)
	st := status{Changed: changed}
	if err != nil {
		st.Refusal = err.Error()
	}
	return st
}
