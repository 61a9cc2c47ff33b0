package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Limits of one call. Sizes are bytes.
type Limits struct {
	// CPU is the processor time of each process, in whole seconds rounded up.
	CPU time.Duration
	// Memory is the private writable memory of each process. AddressSpace is everything that it maps: shared memory, and
	// what language runtimes reserve without using it.
	Memory, AddressSpace int64
	// FileSize is the largest file that can be written.
	FileSize int64
	// OpenFiles per process, Processes per call (threads count).
	OpenFiles, Processes int
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
}

// DefaultLimits returns 10 s of processor time, 512 MiB of memory, as much address space as Node.js and Go need to start,
// and 2 s of grace.
func DefaultLimits() Limits {
	return Limits{
		CPU: 10 * time.Second, Memory: 512 << 20, AddressSpace: 1 << 30, FileSize: 64 << 20,
		OpenFiles: 256, Processes: 128, Grace: 2 * time.Second,
	}
}

// Refusal is an operation that says no, in words for the model.
type Refusal struct{ Reason string }

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// Exit is how a command ended.
type Exit struct {
	// Code is 128 + the signal's number after a signal.
	Code int
	// Signal names the signal that ended the command, "" if none did.
	Signal string
}

// Sandbox starts processes. It is safe for concurrent use.
type Sandbox struct {
	limits     Limits
	namespaces bool
}

// probeTimeout bounds one try-out of what the kernel permits.
const probeTimeout = 10 * time.Second

// New finds out what this machine permits. It fails if the binary does not hand over to RunChild.
func New(ctx context.Context, limits Limits) (*Sandbox, error) {
	if IsChild(os.Args) {
		return nil, errors.New("sandbox: main does not hand over to RunChild")
	}
	s := &Sandbox{limits: limits}
	if err := s.probe(ctx); err != nil {
		return nil, fmt.Errorf("sandbox: start a tool process: %w", err)
	}
	namespaced := &Sandbox{limits: limits, namespaces: true}
	if err := namespaced.probe(ctx); err == nil {
		return namespaced, nil
	}
	// Containers forbid user namespaces as a rule: the report says what enforces instead.
	return s, context.Cause(ctx)
}

func (s *Sandbox) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.run(ctx, job{Mode: modeProbe}, io.Discard)
	return err
}

// Command runs a shell command in dir and writes its output, both streams as they come, to out from one goroutine.
// When ctx ends, the whole process tree is dead before Command returns the context's cause.
func (s *Sandbox) Command(ctx context.Context, dir, command string, out io.Writer) (Exit, error) {
	st, err := s.run(ctx, job{Mode: modeCommand, Dir: dir, Command: command}, out)
	return Exit{Code: st.Code, Signal: st.Signal}, err
}

// Operate runs a registered operation in dir and writes its output to out. It returns the files that were changed. The
// error is a *Refusal when the operation itself says no.
func (s *Sandbox) Operate(ctx context.Context, dir string, op OperationCall, out io.Writer) (changed []string, err error) {
	st, err := s.run(ctx, job{Mode: modeOperation, Dir: dir, Operation: op}, out)
	return st.Changed, err
}

// run starts a child for one job and waits until nothing of it is left.
func (s *Sandbox) run(ctx context.Context, j job, out io.Writer) (status, error) {
	j.Limits, j.Namespaces = s.limits, s.namespaces
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return status{}, fmt.Errorf("status pipe: %w", err)
	}
	defer statusR.Close()
	cmd, crash, err := s.start(ctx, j, out, statusW)
	if err != nil {
		return status{}, err
	}
	waitErr := cmd.Wait()
	if ctx.Err() != nil {
		return status{}, context.Cause(ctx)
	}
	return readStatus(statusR, waitErr, crash)
}

// start hands the job over. Both ends of the status pipe belong to others afterwards.
func (s *Sandbox) start(ctx context.Context, j job, out io.Writer, statusW *os.File) (*exec.Cmd, *crashText, error) {
	defer statusW.Close()
	crash := &crashText{}
	cmd := exec.CommandContext(ctx, selfExe, childArg)
	cmd.Dir = j.Dir
	cmd.Env = childEnv()
	cmd.Stdout, cmd.Stderr = out, crash
	if j.Mode == modeCommand {
		cmd.Stderr = out
	}
	cmd.ExtraFiles = []*os.File{statusW}
	cmd.SysProcAttr = s.attributes(j.Mode)
	control, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("control pipe: %w", err)
	}
	// The child ends its tree when the pipe closes. WaitDelay is for a child that does not.
	cmd.Cancel = control.Close
	cmd.WaitDelay = s.limits.Grace + killTime + time.Second
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	// A child that died early, or a call that ended, breaks the pipe: Wait says more about it than this error.
	_ = json.NewEncoder(control).Encode(j)
	return cmd, crash, nil
}

// attributes put the child into a session of its own and, for commands, into namespaces without network and with none
// but its own processes. The user keeps its id: files stay owned by the user of the server.
func (s *Sandbox) attributes(mode string) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if !s.namespaces || mode == modeOperation {
		return attr
	}
	uid, gid := os.Getuid(), os.Getgid()
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	return attr
}

// readStatus returns what the child said last. A child that could not say anything was killed or crashed, mostly for a
// limit.
func readStatus(r io.Reader, waitErr error, crash *crashText) (status, error) {
	var st status
	if err := json.NewDecoder(r).Decode(&st); err != nil {
		if waitErr == nil {
			waitErr = err
		}
		if crash.outOfMemory() {
			return st, &Refusal{Reason: "the tool ran out of memory"}
		}
		return st, &Refusal{Reason: fmt.Sprintf("the tool process ended early: %v", waitErr)}
	}
	switch {
	case st.Fault != "":
		return st, errors.New(st.Fault)
	case st.Refusal != "":
		return st, &Refusal{Reason: st.Refusal}
	default:
		return st, nil
	}
}

// crashText keeps the first bytes of a crashed child's standard error.
type crashText struct{ text []byte }

const crashBytes = 4 << 10

// Write drops what does not fit.
func (t *crashText) Write(p []byte) (int, error) {
	t.text = append(t.text, p[:min(len(p), crashBytes-len(t.text))]...)
	return len(p), nil
}

// outOfMemory knows the two ways in which the Go runtime says it.
func (t *crashText) outOfMemory() bool {
	return bytes.Contains(t.text, []byte("out of memory")) || bytes.Contains(t.text, []byte("cannot allocate memory"))
}
