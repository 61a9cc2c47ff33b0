package sandbox

import (
	"fmt"
	"log/slog"
	"os"
)

// The names of the limits in a report.
const (
	LimitFiles       = "files"
	LimitNetwork     = "network"
	LimitMemory      = "memory"
	LimitCPU         = "cpu"
	LimitFileSize    = "file_size"
	LimitOpenFiles   = "open_files"
	LimitProcesses   = "processes"
	LimitProcessTree = "process_tree"
	LimitSignals     = "signals"
	LimitPrivileges  = "privileges"
	LimitEnvironment = "environment"
)

// Limit is one line of a report: what holds, and what makes it hold.
type Limit struct {
	Name, Value, EnforcedBy string
}

// nothing stands where a limit is not enforced.
const nothing = "nothing"

// Enforced reports whether anything enforces the limit.
func (l Limit) Enforced() bool { return l.EnforcedBy != nothing }

// Report says for every limit what enforces it on this machine.
type Report []Limit

// Limit returns the line with this name; one that does not exist is not enforced.
func (r Report) Limit(name string) Limit {
	for _, l := range r {
		if l.Name == name {
			return l
		}
	}
	return Limit{Name: name, EnforcedBy: nothing}
}

// LogValue returns one attribute per limit: name = "value: enforced by".
func (r Report) LogValue() slog.Value {
	attrs := make([]slog.Attr, len(r))
	for i, l := range r {
		attrs[i] = slog.String(l.Name, l.Value+": "+l.EnforcedBy)
	}
	return slog.GroupValue(attrs...)
}

// Report returns what enforces the limits of commands here.
func (s *Sandbox) Report() Report { return report(s.limits, s.namespaces, landlockABI(), os.Getuid()) }

func report(l Limits, namespaces bool, abi, uid int) Report {
	return Report{
		{LimitFiles, "workspace read-write, system programs read-only", byLandlock(abi, abiFiles)},
		{LimitNetwork, "none", networkBy(namespaces, abi)},
		{LimitMemory, mebibytes(l.Memory) + " private, " + mebibytes(l.AddressSpace) + " mapped, per process", "RLIMIT_DATA and RLIMIT_AS"},
		{LimitCPU, l.CPU.String() + " per process", "RLIMIT_CPU"},
		{LimitFileSize, mebibytes(l.FileSize), "RLIMIT_FSIZE"},
		{LimitOpenFiles, fmt.Sprint(l.OpenFiles), "RLIMIT_NOFILE"},
		{LimitProcesses, fmt.Sprint(l.Processes), processesBy(namespaces, uid)},
		{LimitProcessTree, "ends with the call", treeBy(namespaces)},
		{LimitSignals, "own processes only", signalsBy(namespaces, abi)},
		{LimitPrivileges, "no capabilities, no set-uid", "PR_SET_NO_NEW_PRIVS and capset"},
		{LimitEnvironment, "PATH, HOME, LANG, TMPDIR, PWD", "execve"},
	}
}

func byLandlock(abi, since int) string {
	if abi < since {
		return nothing
	}
	return fmt.Sprintf("Landlock (ABI %d)", abi)
}

func networkBy(namespaces bool, abi int) string {
	if namespaces {
		return "network namespace"
	}
	if abi < abiTCP {
		return nothing
	}
	return byLandlock(abi, abiTCP) + ", TCP only"
}

func processesBy(namespaces bool, uid int) string {
	if countsProcesses(namespaces, uid) {
		return "RLIMIT_NPROC"
	}
	return nothing
}

func treeBy(namespaces bool) string {
	if namespaces {
		return "PID namespace"
	}
	return "supervisor as reaper of orphans"
}

func signalsBy(namespaces bool, abi int) string {
	if namespaces {
		return "PID namespace"
	}
	return byLandlock(abi, abiScope)
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
