package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killTime bounds the hunt for a process tree that does not die.
	killTime = 2 * time.Second
	killPoll = 5 * time.Millisecond
)

// supervise starts the command, waits for it, and leaves no process behind.
func supervise(j job, stop <-chan struct{}) status {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return status{Fault: fmt.Sprintf("become the reaper of orphans: %v", err)}
	}
	pid, err := startConfined(j)
	if err != nil {
		return status{Fault: err.Error()}
	}
	t := &tree{main: pid, exited: make(chan unix.WaitStatus, 1), empty: make(chan struct{})}
	go t.reap()
	var st status
	select {
	case ws := <-t.exited:
		st = exitStatus(ws)
	case <-stop:
		t.terminate(j.Limits.Grace)
	}
	t.kill()
	return st
}

func exitStatus(ws unix.WaitStatus) status {
	if ws.Signaled() {
		return status{Code: 128 + int(ws.Signal()), Signal: unix.SignalName(ws.Signal())}
	}
	return status{Code: ws.ExitStatus()}
}

// startConfined starts the process that becomes the shell and returns when it has: an error of its own limits, written
// to a pipe that closes on exec, is returned here.
func startConfined(j job) (pid int, err error) {
	jobR, jobW, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("job pipe: %w", err)
	}
	defer jobW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("error pipe: %w", err)
	}
	defer errR.Close()
	pid, err = syscall.ForkExec(selfExe, []string{selfExe, childArg, confinedArg}, &syscall.ProcAttr{
		Dir:   j.Dir,
		Env:   []string{},
		Files: []uintptr{jobR.Fd(), 1, 2, errW.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	// The child has its copies; ours would keep the pipes open.
	err = errors.Join(err, jobR.Close(), errW.Close())
	if err != nil {
		return 0, fmt.Errorf("start the command: %w", err)
	}
	if err := json.NewEncoder(jobW).Encode(j); err != nil {
		return 0, fmt.Errorf("hand the command over: %w", err)
	}
	text, err := io.ReadAll(errR)
	if err != nil || len(text) > 0 {
		return 0, fmt.Errorf("confine the command: %s%w", text, err)
	}
	return pid, nil
}

// tree is the command and everything that it started.
type tree struct {
	main   int
	exited chan unix.WaitStatus
	// empty is closed when no child is left, orphans included.
	empty chan struct{}
}

// reap collects the dead until there is nobody left to die.
func (t *tree) reap() {
	defer close(t.empty)
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // ECHILD
		}
		if pid == t.main {
			t.exited <- ws
		}
	}
}

// terminate asks politely and waits for at most grace.
func (t *tree) terminate(grace time.Duration) {
	t.signal(unix.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-t.empty:
	case <-timer.C:
	}
}

// kill repeats SIGKILL: what a dying process forked or orphaned is found in the next round.
func (t *tree) kill() {
	poll := time.NewTicker(killPoll)
	defer poll.Stop()
	deadline := time.NewTimer(killTime)
	defer deadline.Stop()
	for {
		t.signal(unix.SIGKILL)
		select {
		case <-t.empty:
			return
		case <-deadline.C:
			return // in a PID namespace the exit of process 1 does the rest
		case <-poll.C:
		}
	}
}

// signal reaches every process of the tree. A process that is gone already is no error.
func (t *tree) signal(sig unix.Signal) {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, sig) // all of the namespace but process 1
		return
	}
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, sig)
	}
}
