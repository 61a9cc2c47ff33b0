package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// descendants returns the children of a process, theirs, and so on, as /proc shows them now.
func descendants(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // without /proc no child could have been started
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(e.Name()); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	found := children[root]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// parentOf reads "pid (name) state ppid …"; the name may hold anything, also ")". A process that is gone has none.
func parentOf(pid string) (int, bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
