package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// level is the result at one number of clients.
type level struct {
	Clients int
	// Turns ended within the window.
	Turns        int
	TurnsPerSec  float64
	Turn, Accept timing
	Errors       int
	spent

	problems []error
}

// spent is what was used between two samples, per turn or per second.
type spent struct {
	// CPU is seconds by process, CPUTotal of all of them.
	CPU      map[string]float64
	CPUTotal float64
	// WALSyncs and WritingTransactions of PostgreSQL.
	WALSyncs, WritingTransactions float64
	// Busy, Foreign and Stolen are shares of the processors' time: busy at all, used by processes that do not belong to
	// the benchmark, and taken by the host of a virtual machine.
	Busy, Foreign, Stolen float64
}

// measureTurns starts the services and measures how they rest and then one level after the other.
func measureTurns(ctx context.Context, o options, s *servers, dir string) (idle spent, levels []level, err error) {
	if len(o.clients) == 0 {
		return idle, nil, nil
	}
	r, err := startReceiver(ctx)
	if err != nil {
		return idle, nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	progress("starting services")
	k, err := startStack(ctx, o.bin, dir, s, r.url())
	if err != nil {
		return idle, nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, k.logs())
		}
		err = errors.Join(err, k.stop())
	}()
	sampler, err := newSampler(s, k.processes)
	if err != nil {
		return idle, nil, err
	}
	from, to, err := sampleWindow(ctx, o.warmUp, o.window/3, sampler)
	if err != nil {
		return idle, nil, err
	}
	idle = spend(from, to, to.at.Sub(from.at).Seconds())
	for _, n := range o.clients {
		progress("%s", clientCount(n))
		l, err := measureLevel(ctx, o, n, k.door, r, sampler)
		if err != nil {
			return idle, levels, err
		}
		progress("%s: %.0f turns/s, p50 %s, p99 %s, %d errors", clientCount(n), l.TurnsPerSec, l.Turn.P50, l.Turn.P99, l.Errors)
		levels = append(levels, l)
	}
	return idle, levels, nil
}

// measureLevel lets clients talk, warms up, and samples at both ends of the window.
func measureLevel(ctx context.Context, o options, clients int, addr string, r *receiver, sampler *sampler) (level, error) {
	d, err := newDoor(addr, clients, r)
	if err != nil {
		return level{}, err
	}
	defer d.http.CloseIdleConnections()
	talking, stop := context.WithCancel(ctx)
	defer stop()
	var log turnLog
	var wg sync.WaitGroup
	for i := range clients {
		c := &client{door: d, name: fmt.Sprintf("l%d-%d", clients, i)}
		wg.Go(func() { c.talk(talking, log.add) })
	}
	from, to, err := sampleWindow(ctx, o.warmUp, o.window, sampler)
	stop()
	wg.Wait()
	if err != nil {
		return level{}, err
	}
	l := log.level(from, to)
	l.Clients = clients
	l.problems = append(l.problems, r.problems()...)
	l.Errors = len(l.problems)
	return l, nil
}

func sampleWindow(ctx context.Context, warmUp, window time.Duration, sampler *sampler) (from, to sample, err error) {
	if err = wait(ctx, warmUp); err != nil {
		return from, to, err
	}
	if from, err = sampler.take(ctx); err != nil {
		return from, to, err
	}
	if err = wait(ctx, window); err != nil {
		return from, to, err
	}
	to, err = sampler.take(ctx)
	return from, to, err
}

// turnLog collects the turns of all clients.
type turnLog struct {
	mu    sync.Mutex
	turns []turn
}

func (l *turnLog) add(t turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns = append(l.turns, t)
}

// level sums up the turns that ended between two samples. Problems count whenever they came.
func (l *turnLog) level(from, to sample) level {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out level
	var whole, accepted []time.Duration
	for _, t := range l.turns {
		if t.err != nil {
			out.problems = append(out.problems, t.err)
			continue
		}
		if end := t.begun.Add(t.whole); !end.Before(from.at) && end.Before(to.at) {
			whole, accepted = append(whole, t.whole), append(accepted, t.accepted)
		}
	}
	out.Turns, out.Turn, out.Accept = len(whole), summarise(whole), summarise(accepted)
	out.TurnsPerSec = per(float64(out.Turns), to.at.Sub(from.at).Seconds())
	out.spent = spend(from, to, float64(out.Turns))
	return out
}

// spend says what was used between two samples, divided by a number of turns or seconds.
func spend(from, to sample, by float64) spent {
	s := spent{CPU: map[string]float64{}}
	ours := 0.0
	for name, used := range to.cpu {
		used -= from.cpu[name]
		ours += used
		s.CPU[name] = per(used, by)
	}
	s.CPUTotal = per(ours, by)
	s.WALSyncs = per(float64(to.postgres.syncs-from.postgres.syncs), by)
	s.WritingTransactions = per(float64(to.postgres.transactions-from.postgres.transactions), by)
	total := to.machine.total - from.machine.total
	busy := to.machine.busy - from.machine.busy
	s.Busy, s.Stolen = per(busy, total), per(to.machine.stolen-from.machine.stolen, total)
	s.Foreign = max(0, per(busy-ours, total)) // the two clocks do not tick together
	return s
}

// sample is a reading of all counters.
type sample struct {
	at       time.Time
	cpu      map[string]float64
	machine  machineCPU
	postgres pgCounters
}

// sampler knows which processes to look at.
type sampler struct {
	stats *pgStats
	pids  map[string]int
}

func newSampler(s *servers, services []*process) (*sampler, error) {
	pids, err := s.pids()
	if err != nil {
		return nil, err
	}
	pids[nameClients] = os.Getpid()
	for _, p := range services {
		pids[p.name] = p.cmd.Process.Pid
	}
	return &sampler{stats: s.stats, pids: pids}, nil
}

func (s *sampler) take(ctx context.Context) (sample, error) {
	postgres, errPostgres := s.stats.read(ctx)
	machine, errMachine := readMachineCPU(procRoot)
	table, errTable := readProcesses(procRoot)
	out := sample{at: time.Now(), cpu: map[string]float64{}, machine: machine, postgres: postgres}
	for name, pid := range s.pids {
		out.cpu[name] = cpuOf(table, name, pid)
	}
	return out, errors.Join(errPostgres, errMachine, errTable)
}

// cpuOf counts the children of PostgreSQL only: those of this process have rows of their own.
func cpuOf(table []processStat, name string, pid int) float64 {
	if name == namePostgres {
		return family(table, pid)
	}
	for _, p := range table {
		if p.pid == pid {
			return p.own
		}
	}
	return 0
}
