package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite golden files")

const ms = time.Millisecond

func exampleLevel(clients int, rate float64, p50, p99 time.Duration, busy float64) level {
	return level{
		Clients: clients, Turns: int(rate * 10), TurnsPerSec: rate,
		Turn: timing{Count: 1, P50: p50, P99: p99}, Accept: timing{Count: 1, P50: ms, P99: 2 * ms},
		spent: spent{
			CPU:      map[string]float64{nameWorker: 0.0012, namePostgres: 0.0008, nameIngress: 0.0002, nameClients: 0.0003},
			CPUTotal: 0.0025, WALSyncs: 1.5, WritingTransactions: 5, Busy: busy, Foreign: 0.01, Stolen: 0.02,
		},
	}
}

func example() *report {
	var b bare
	for i, name := range []string{opPublish, opAdmit, opReserve, opAcquire, opClaim, opRenew, opFinish, opRelease, opTake, opMark} {
		b.Batches = append(b.Batches, operation{Name: name, Size: 1, Call: timing{P50: time.Duration(i+1) * 100 * time.Microsecond, P99: 3 * ms}, PerSec: 1000})
	}
	for _, name := range []string{hopHTTP, hopIngest, hopRun, hopOut} {
		b.Hops = append(b.Hops, operation{Name: name, Size: 1, Call: timing{P50: 200 * time.Microsecond, P99: ms}, PerSec: 100})
	}
	for n, rate := range map[int]float64{1: 5000, 16: 2000, 64: 1900} { // one connection does not count, however fast
		b.Finishes = append(b.Finishes, operation{Name: opFinish, Size: n, Call: timing{P50: ms, P99: 9 * ms}, PerSec: rate})
	}
	r := &report{
		At: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Window: 10 * time.Second, Note: "An example.", Bare: b,
		Machine: machine{
			Cores: 2, Processor: "Example", Kernel: "6.1", MemoryGiB: 8, Go: "1.26", NATS: "2", Postgres: "15", Redis: "7",
			Fsync: "on", SyncCommit: "on", WALSync: "fdatasync", SharedBuf: "128MB",
		},
		Idle: spent{CPU: map[string]float64{nameWorker: 0.003, namePostgres: 0.002, nameIngress: 0.001, nameClients: 0}, Busy: 0.02},
		Levels: []level{
			exampleLevel(1, 150, 7*ms, 9*ms, 0.4), exampleLevel(16, 450, 30*ms, 60*ms, 0.99), exampleLevel(256, 1300, 190*ms, 400*ms, 0.99),
		},
	}
	r.Bare.Finishes = sortedBySize(r.Bare.Finishes)
	r.judge()
	return r
}

func sortedBySize(ops []operation) []operation {
	sorted := make([]operation, 0, len(ops))
	for _, n := range bareSizes() {
		for _, op := range ops {
			if op.Size == n {
				sorted = append(sorted, op)
			}
		}
	}
	return sorted
}

func TestJudge_ComparesWithBareOperationsAndTargets(t *testing.T) {
	t.Parallel()
	r := example()
	// admit 200, reserve 300, acquire 400, claim 500, finish 700, take 900 µs; three hops and two requests of 200 µs.
	require.Equal(t, 4*ms, r.PathSum)
	require.InDelta(t, 2000.0, r.FinishRate, 1e-9)
	var got []string
	for _, v := range append(append([]verdict{}, r.Ratios...), r.Targets...) {
		got = append(got, strings.Join([]string{v.What, v.Want, v.Got, map[bool]string{true: "met", false: "missed"}[v.Met]}, " | "))
	}
	require.Equal(t, []string{"At 16 clients " + r.level(16).why(2) + "."}, r.Misses())
	require.Equal(t, []string{
		"median turn at 1 client / sum of its bare parts | ≤ 2 | 1.75 | met",
		"turns/s at 16 clients / bare finishes/s | ≥ 25 % | 22 % | missed",
		"turns/s at 256 clients / bare finishes/s | ≥ 60 % | 65 % | met",
		"p50 at 1 client | ≤ 8 ms | 7.00 ms | met",
		"turns/s at 16 clients | ≥ 500 | 450 | missed",
		"p99 at 16 clients | ≤ 60 ms | 60.0 ms | met",
	}, got)
}

func TestWhy_TellsFullProcessorsFromWaiting(t *testing.T) {
	t.Parallel()
	r := example()
	require.Equal(t, "the processors are full (99 %): a turn costs 2.50 ms of CPU, which 2 cores do 800 times a second; "+
		"most of it is worker 48 %, postgres 32 %, clients and receiver 12 %", r.level(16).why(2))
	require.Equal(t, "the processors are 40 % busy, so the time goes into waiting: disk syncs, hops and wake-ups; "+
		"the CPU goes to worker 48 %, postgres 32 %, clients and receiver 12 %", r.level(1).why(2))
}

func TestMarkdown_WritesTheDocument(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, example().markdown(&b))
	golden := filepath.Join("testdata", "report.md")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

func TestMarkdown_SaysThatTheMachineWasShared(t *testing.T) {
	t.Parallel()
	r := example()
	r.Levels[1].Foreign = 0.345
	var b strings.Builder
	require.NoError(t, r.markdown(&b))
	require.Contains(t, b.String(), "used up to 34 % of the processors")
}

func TestPrint_WritesJSONThatHoldsEverything(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, example().print(&b, "json"))
	var got report
	require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
	require.Equal(t, example(), &got)
}

func TestSave_KeepsTheOldDocumentWhenTurnsFailed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	r := example()
	require.NoError(t, r.save(path))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(good), "# Benchmarks")

	r.Levels[0].Errors, r.Levels[0].problems = 1, []error{errors.New("no reply within 30s")}
	r.Note = "Another run."
	require.NoError(t, r.save(path))
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(good), string(kept))
	require.EqualError(t, r.failed(), "1 client: 1 errors, the first: no reply within 30s")
	require.NoError(t, r.save(""))
}

func TestMillis_KeepsThreeDigits(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0.02", millis(20*time.Microsecond))
	require.Equal(t, "12.3", millis(12345*time.Microsecond))
	require.Equal(t, "123", millis(123456*time.Microsecond))
}

func TestDescribeMachine_ReadsVersionsAndValues(t *testing.T) {
	t.Parallel()
	require.Equal(t, "7.0.15", redisVersion("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"))
	require.Equal(t, "unknown", redisVersion("something else"))
	require.Equal(t, "Turin: 2", colonValue("a : b\nmodel name\t: Turin: 2\nmodel name: other\n", "model name"))
	require.Empty(t, colonValue("a : b\n", "c"))
}
