package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	procRoot = "/proc"
	// ticksPerSecond is the unit of times in /proc, the same on every Linux architecture that Go runs on.
	ticksPerSecond = 100
)

// processStat is what /proc/<pid>/stat tells.
type processStat struct {
	pid, parent int
	command     string
	// own is the CPU time of the process in seconds, reaped that of its children that have ended.
	own, reaped float64
}

// parseProcess reads a line of /proc/<pid>/stat. The command may hold spaces and parentheses.
func parseProcess(line string) (processStat, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return processStat{}, errors.New("no command in parentheses")
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 15 {
		return processStat{}, fmt.Errorf("%d fields behind the command, want 15 or more", len(fields))
	}
	pid, errPID := strconv.Atoi(strings.TrimSpace(line[:open]))
	parent, errParent := strconv.Atoi(fields[1])
	var ticks [4]float64 // utime, stime, cutime, cstime
	errs := []error{errPID, errParent}
	for i := range ticks {
		var err error
		ticks[i], err = strconv.ParseFloat(fields[11+i], 64)
		errs = append(errs, err)
	}
	return processStat{
		pid: pid, parent: parent, command: line[open+1 : end],
		own: (ticks[0] + ticks[1]) / ticksPerSecond, reaped: (ticks[2] + ticks[3]) / ticksPerSecond,
	}, errors.Join(errs...)
}

// readProcesses reads all processes below root. Those that end meanwhile are left out.
func readProcesses(root string) ([]processStat, error) {
	files, err := filepath.Glob(filepath.Join(root, "[0-9]*", "stat"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("list processes: none in %s; the benchmark needs Linux", root)
	}
	var all []processStat
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read process: %w", err)
		}
		p, err := parseProcess(string(raw))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// gone: the process ended before its file was opened, or between that and the read.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// family is the CPU time of a process and its children, in seconds: PostgreSQL has one child per connection.
func family(table []processStat, pid int) float64 {
	sum := 0.0
	for _, p := range table {
		switch pid {
		case p.pid:
			sum += p.own + p.reaped
		case p.parent:
			sum += p.own
		}
	}
	return sum
}

// machineCPU is the CPU time of the whole machine in seconds since its start.
type machineCPU struct {
	busy, stolen, total float64
}

// parseMachine reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal guest guest_nice.
// Guest time is part of user time.
func parseMachine(text string) (machineCPU, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return machineCPU{}, fmt.Errorf("no times of all processors in %q", line)
	}
	var seconds [8]float64
	for i := range seconds {
		ticks, err := strconv.ParseFloat(fields[1+i], 64)
		if err != nil {
			return machineCPU{}, fmt.Errorf("times of all processors: %w", err)
		}
		seconds[i] = ticks / ticksPerSecond
	}
	m := machineCPU{stolen: seconds[7]}
	for _, s := range seconds {
		m.total += s
	}
	m.busy = m.total - seconds[3] - seconds[4] - m.stolen
	return m, nil
}

func readMachineCPU(root string) (machineCPU, error) {
	raw, err := os.ReadFile(filepath.Join(root, "stat"))
	if err != nil {
		return machineCPU{}, fmt.Errorf("read processor times: %w", err)
	}
	return parseMachine(string(raw))
}
