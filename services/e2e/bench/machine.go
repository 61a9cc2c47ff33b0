package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// machine says what the numbers were made on. It names no host and no path.
type machine struct {
	Cores              int
	Processor, Kernel  string
	MemoryGiB          float64
	Go, NATS           string
	Postgres, Redis    string
	Fsync, SyncCommit  string
	WALSync, SharedBuf string
}

func describeMachine(ctx context.Context, s *servers) (m machine, err error) {
	m = machine{Cores: runtime.NumCPU(), Go: strings.TrimPrefix(runtime.Version(), "go"), NATS: moduleVersion(natsModule)}
	kernel, errKernel := os.ReadFile(procRoot + "/sys/kernel/osrelease")
	cpu, errCPU := os.ReadFile(procRoot + "/cpuinfo")
	memory, errMemory := os.ReadFile(procRoot + "/meminfo")
	redis, errRedis := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err := errors.Join(errKernel, errCPU, errMemory, errRedis); err != nil {
		return m, fmt.Errorf("describe the machine: %w", err)
	}
	m.Kernel = strings.TrimSpace(string(kernel))
	m.Processor = colonValue(string(cpu), "model name")
	kib, _ := strconv.ParseFloat(strings.TrimSuffix(colonValue(string(memory), "MemTotal"), " kB"), 64) // 0 = not told
	m.MemoryGiB = kib / (1 << 20)
	m.Redis = redisVersion(string(redis))
	for _, setting := range []struct {
		name string
		to   *string
	}{
		{"server_version", &m.Postgres},
		{"fsync", &m.Fsync},
		{"synchronous_commit", &m.SyncCommit},
		{"wal_sync_method", &m.WALSync},
		{"shared_buffers", &m.SharedBuf},
	} {
		if *setting.to, err = s.stats.setting(ctx, setting.name); err != nil {
			return m, err
		}
	}
	return m, nil
}

// natsModule is the NATS server, which is part of this program.
const natsModule = "github.com/nats-io/nats-server/v2"

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return "unknown"
}

// colonValue returns the value of the first line "key : value", "" if there is none.
func colonValue(text, key string) string {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), ":")
		if ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// redisVersion reads "Redis server v=7.0.15 sha=…".
func redisVersion(line string) string {
	for field := range strings.FieldsSeq(line) {
		if v, ok := strings.CutPrefix(field, "v="); ok {
			return v
		}
	}
	return "unknown"
}
