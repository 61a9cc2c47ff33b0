package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const postmasterLine = "77 (postgres: (a b) c) S 5 77 77 0 -1 4194560 100 200 0 0 150 50 300 100 20 0 1 0 9 0 0"

func TestParseProcess_ReadsTimesBehindAnyCommand(t *testing.T) {
	t.Parallel()
	got, err := parseProcess(postmasterLine)
	require.NoError(t, err)
	require.Equal(t, processStat{pid: 77, parent: 5, command: "postgres: (a b) c", own: 2, reaped: 4}, got)
}

func TestParseProcess_RefusesWhatIsNoSuchLine(t *testing.T) {
	t.Parallel()
	for line, problem := range map[string]string{
		"":                                    "no command",
		"77 postgres S 5":                     "no command",
		"77 (x) S 5":                          "fields behind the command",
		"x (x) S 5 1 1 0 1 1 1 1 1 1 1 1 1 1": "invalid syntax",
	} {
		_, err := parseProcess(line)
		require.ErrorContains(t, err, problem, line)
	}
}

func TestFamily_CountsChildrenAliveAndEnded(t *testing.T) {
	t.Parallel()
	table := []processStat{
		{pid: 1, parent: 0, own: 100, reaped: 100},
		{pid: 5, parent: 1, own: 1, reaped: 2},
		{pid: 6, parent: 5, own: 4, reaped: 50},
		{pid: 7, parent: 5, own: 8},
		{pid: 8, parent: 6, own: 16},
	}
	require.InDelta(t, 15.0, family(table, 5), 1e-9)
	require.InDelta(t, 15.0, cpuOf(table, namePostgres, 5), 1e-9)
	require.InDelta(t, 1.0, cpuOf(table, nameRedis, 5), 1e-9, "other servers have no children")
	require.Zero(t, cpuOf(table, nameRedis, 99))
}

func TestReadProcesses_ReadsEveryProcessOfADirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	_, err := readProcesses(root)
	require.ErrorContains(t, err, "the benchmark needs Linux")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "77"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "77", "stat"), []byte(postmasterLine+"\n"), 0o600))
	got, err := readProcesses(root)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, 77, got[0].pid)
}

func TestParseMachine_TellsBusyFromStolenTime(t *testing.T) {
	t.Parallel()
	got, err := parseMachine("cpu  100 20 30 400 50 6 4 90 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	require.NoError(t, err)
	require.InDelta(t, 1.6, got.busy, 1e-9)
	require.InDelta(t, 0.9, got.stolen, 1e-9)
	require.InDelta(t, 7.0, got.total, 1e-9)
	_, err = parseMachine("cpu0 1 1 1 1 1 1 1 1")
	require.ErrorContains(t, err, "no times of all processors")
	_, err = parseMachine("cpu 1 1 1 x 1 1 1 1")
	require.ErrorContains(t, err, "invalid syntax")
}
