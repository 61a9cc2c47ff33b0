package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTurnLog_CountsTurnsThatEndInTheWindow(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	var log turnLog
	for _, x := range []turn{
		{begun: at(0), whole: time.Second, accepted: 1},            // before
		{begun: at(1), whole: time.Second, accepted: 2},            // ends as the window begins
		{begun: at(2), whole: 2 * time.Second, accepted: 4},        // inside
		{begun: at(11), whole: time.Second, accepted: 8},           // ends as the window ends
		{begun: at(3), err: errors.New("no reply")},                // never counts
		{begun: at(100), whole: time.Second, accepted: 1_000_000},  // after
		{begun: at(1.5), whole: 3 * time.Second, accepted: 10_000}, // begun before, inside
	} {
		log.add(x)
	}
	from := sample{
		at: at(2), cpu: map[string]float64{nameWorker: 1, namePostgres: 10}, machine: machineCPU{busy: 5, stolen: 1, total: 100},
		postgres: pgCounters{syncs: 7, transactions: 100},
	}
	to := sample{
		at: at(12), cpu: map[string]float64{nameWorker: 2.5, namePostgres: 13}, machine: machineCPU{busy: 15, stolen: 3, total: 120},
		postgres: pgCounters{syncs: 10, transactions: 115},
	}
	got := log.level(from, to)
	require.Equal(t, 3, got.Turns)
	require.InDelta(t, 0.3, got.TurnsPerSec, 1e-9)
	require.Equal(t, timing{Count: 3, P50: 2 * time.Second, P99: 3 * time.Second}, got.Turn)
	require.Equal(t, timing{Count: 3, P50: 4, P99: 10_000}, got.Accept)
	require.Len(t, got.problems, 1)
	require.InDelta(t, 0.5, got.CPU[nameWorker], 1e-9)
	require.InDelta(t, 1.0, got.CPU[namePostgres], 1e-9)
	require.InDelta(t, 1.5, got.CPUTotal, 1e-9)
	require.InDelta(t, 1.0, got.WALSyncs, 1e-9)
	require.InDelta(t, 5.0, got.WritingTransactions, 1e-9)
	require.InDelta(t, 0.5, got.Busy, 1e-9)
	require.InDelta(t, 0.275, got.Foreign, 1e-9, "10 s busy, 4.5 s of them ours, of 20")
	require.InDelta(t, 0.1, got.Stolen, 1e-9)
}

func TestParse_ReadsLevelsAndTimes(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-clients", "2,8", "-seconds", "20", "-bare", "0.5"})
	require.NoError(t, err)
	require.Equal(t, []int{2, 8}, o.clients)
	require.Equal(t, 20*time.Second, o.window)
	require.Equal(t, 4*time.Second, o.warmUp)
	require.Equal(t, 500*time.Millisecond, o.bare)
	o, err = parse([]string{"-clients", "", "-seconds", "1"})
	require.NoError(t, err)
	require.Empty(t, o.clients)
	require.Equal(t, time.Second, o.warmUp, "never shorter")
	for _, args := range [][]string{{"-clients", "0"}, {"-clients", "1,x"}, {"-o", "xml"}} {
		_, err = parse(args)
		require.Error(t, err, "%v", args)
	}
}
