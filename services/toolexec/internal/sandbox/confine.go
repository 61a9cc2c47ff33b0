package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TempDir is the folder inside a workspace that commands have as TMPDIR.
const TempDir = ".tmp"

const searchPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// runConfined becomes the shell. It returns only if it could not.
func runConfined() int {
	syscall.CloseOnExec(reportFD)
	report := os.NewFile(reportFD, "error")
	var j job
	err := json.NewDecoder(os.Stdin).Decode(&j)
	if err == nil {
		err = becomeShell(j)
	}
	_, _ = fmt.Fprint(report, err) // the supervisor is gone: nobody to tell
	return 1
}

// becomeShell limits the process step by step. The order matters: what needs a right comes before giving it up.
func becomeShell(j job) error {
	tmp := filepath.Join(j.Dir, TempDir)
	if err := os.Mkdir(tmp, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("temporary folder: %w", err)
	}
	if err := nullInput(); err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := restrict(commandPolicy(j.Dir)); err != nil {
		return err
	}
	if err := unix.CloseRange(reportFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil &&
		!errors.Is(err, unix.ENOSYS) { // Go opens everything close-on-exec: this is for what was inherited
		return fmt.Errorf("close files: %w", err)
	}
	unix.Umask(0o077)
	argv, err := boundedShell(j)
	if err != nil {
		return err
	}
	env := []string{"PATH=" + searchPath, "HOME=" + j.Dir, "LANG=C.UTF-8", "TMPDIR=" + tmp, "PWD=" + j.Dir}
	if err := setLimits(commandLimits(j)); err != nil {
		return err
	}
	return syscall.Exec(argv[0], argv, env)
}

// boundedShell is the command line of a shell that bounds its own memory and becomes the command. This process cannot do
// it: the Go runtime may have to allocate once more before the exec, and would crash behind the limit.
func boundedShell(j job) ([]string, error) {
	data, err := kibibytes(unix.RLIMIT_DATA, j.Limits.Memory)
	if err != nil {
		return nil, err
	}
	space, err := kibibytes(unix.RLIMIT_AS, j.Limits.AddressSpace)
	if err != nil {
		return nil, err
	}
	const script = `ulimit -d "$1" && ulimit -v "$2" && exec /bin/sh -c "$3"`
	return []string{"/bin/sh", "-c", script, "sh", data, space, j.Command}, nil
}

// kibibytes is a memory limit in the unit of the shell, never above what was inherited.
func kibibytes(resource int, limit int64) (string, error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return "", fmt.Errorf("get limit %d: %w", resource, err)
	}
	return strconv.FormatUint(min(uint64(limit), now.Max)>>10, 10), nil
}

// nullInput makes standard input empty; it carried the job.
func nullInput() error {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	if err := unix.Dup3(null, 0, 0); err != nil {
		return fmt.Errorf("empty standard input: %w", err)
	}
	return nil
}

// confineOperation limits this thread, and the resources of the process, for work on one workspace.
func confineOperation(j job, writes bool) error {
	limits, err := operationLimits(j.Limits) // reads /proc, which is closed afterwards
	if err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := restrict(operationPolicy(j.Dir, writes)); err != nil {
		return err
	}
	unix.Umask(0o077)
	return setLimits(limits)
}

// dropPrivileges gives up every capability, for good: neither a set-uid program nor the id 0 brings one back.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// Who may not drop from the bounding set has no capability that could come back.
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

type rlimit struct {
	resource   int
	soft, hard uint64
}

func fixed(resource int, n int64) rlimit { return rlimit{resource, uint64(n), uint64(n)} }

// common limits hold for operations and commands. The soft CPU limit names the reason (SIGXCPU), the hard one kills.
func (l Limits) common() []rlimit {
	cpu := uint64(math.Ceil(l.CPU.Seconds()))
	return []rlimit{
		{unix.RLIMIT_CPU, cpu, cpu + 1},
		fixed(unix.RLIMIT_FSIZE, l.FileSize),
		fixed(unix.RLIMIT_NOFILE, int64(l.OpenFiles)),
		fixed(unix.RLIMIT_CORE, 0),
	}
}

// commandLimits are those that this process bears itself before it becomes the shell, see boundedShell.
func commandLimits(j job) []rlimit {
	limits := j.Limits.common()
	if countsProcesses(j.Namespaces, os.Getuid()) {
		limits = append(limits, fixed(unix.RLIMIT_NPROC, int64(j.Limits.Processes)))
	}
	return limits
}

// countsProcesses reports whether RLIMIT_NPROC means the processes of this call: outside of a user namespace it counts
// all processes of the user on the machine, and it does not bind root.
func countsProcesses(namespaces bool, uid int) bool { return namespaces && uid != 0 }

// operationLimits bound memory relative to what the Go runtime has mapped already.
func operationLimits(l Limits) ([]rlimit, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return nil, fmt.Errorf("measure memory: %w", err)
	}
	var size, resident, shared, text, lib, data int64 // pages
	if _, err := fmt.Sscan(string(statm), &size, &resident, &shared, &text, &lib, &data); err != nil {
		return nil, fmt.Errorf("measure memory: %w", err)
	}
	page := int64(os.Getpagesize())
	return append(l.common(),
		fixed(unix.RLIMIT_DATA, data*page+l.Memory), fixed(unix.RLIMIT_AS, size*page+l.AddressSpace)), nil
}

// setLimits never raises a limit that was inherited.
func setLimits(limits []rlimit) error {
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("get limit %d: %w", l.resource, err)
		}
		next := unix.Rlimit{Cur: min(l.soft, now.Max), Max: min(l.hard, now.Max)}
		if err := unix.Setrlimit(l.resource, &next); err != nil {
			return fmt.Errorf("set limit %d to %d: %w", l.resource, l.hard, err)
		}
	}
	return nil
}

// CPUShare is the part of one core that a call gets, as processor time over its timeout.
const CPUShare = 0.3

// CPUOver returns the processor time for calls that take at most timeout, at least one second.
func CPUOver(timeout time.Duration) time.Duration {
	return max(time.Second, time.Duration(CPUShare*float64(timeout)))
}
