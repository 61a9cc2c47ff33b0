// Command bench measures turns through the services, as processes of their own, on real servers of this machine: make
// bench.
//
// In one run it measures turns at several numbers of clients, and then, on the same servers, the bare operations that a
// turn is made of. What a turn costs beyond them is the runtime's own. The result goes to standard output and into
// docs/benchmarks.md. A target that is missed is no error; a turn that fails is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be undone: run has stopped what it started
	}
}

// options of a run.
type options struct {
	clients []int
	// warmUp comes before each measured window; bare is the time for each number of connections of the bare operations.
	warmUp, window, bare time.Duration
	bin, doc, format     string
	note                 string
	// natsStore makes this process the NATS server: it is how bench starts itself again.
	natsStore string
}

func parse(args []string) (options, error) {
	var o options
	var clients string
	var seconds, bare float64
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&clients, "clients", "1,16,64,256", "numbers of clients, one level each; empty: bare operations only")
	flags.Float64Var(&seconds, "seconds", 10, "measured seconds of each level, after a fifth of it to warm up")
	flags.Float64Var(&bare, "bare", 3, "seconds for the bare operations at each number of connections")
	flags.StringVar(&o.bin, "bin", "", "directory of built services; empty: build them")
	flags.StringVar(&o.doc, "doc", "docs/benchmarks.md", "file for the result; empty: none")
	flags.StringVar(&o.format, "o", "text", "what is printed: text or json")
	flags.StringVar(&o.note, "note", "", "a remark on the circumstances, for the result")
	flags.StringVar(&o.natsStore, "nats-store", "", "internal: be the NATS server, with its data in this directory")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.format != "text" && o.format != "json" {
		return o, fmt.Errorf("-o %s: neither text nor json", o.format)
	}
	o.window = time.Duration(seconds * float64(time.Second))
	o.warmUp, o.bare = max(o.window/5, time.Second), time.Duration(bare*float64(time.Second))
	var err error
	o.clients, err = parseNumbers(clients)
	return o, err
}

func parseNumbers(list string) ([]int, error) {
	var numbers []int
	for field := range strings.SplitSeq(list, ",") {
		if field == "" {
			continue
		}
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-clients: %q is not a positive number", field)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.natsStore != "" {
		return serveNATS(o.natsStore, os.Stdin, out)
	}
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(r.print(out, o.format), r.save(o.doc), r.failed())
}

// measure starts the servers, runs all levels and then the bare operations, and stops everything.
func measure(ctx context.Context, o options) (r *report, err error) {
	dir, err := os.MkdirTemp("", "hermes-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.bin == "" {
		if o.bin, err = build(ctx, dir); err != nil {
			return nil, err
		}
	}
	progress("starting servers")
	s, err := startServers(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	r = &report{At: time.Now().UTC(), Note: o.note, Window: o.window}
	if r.Machine, err = describeMachine(ctx, s); err != nil {
		return nil, err
	}
	if r.Idle, r.Levels, err = measureTurns(ctx, o, s, dir); err != nil {
		return nil, err
	}
	if r.Bare, err = measureBare(ctx, o.bare, s); err != nil {
		return nil, err
	}
	r.judge()
	return r, nil
}

// progress tells a person who waits what is going on; nobody depends on it.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

// wait returns when d has passed, or with the cause of the end of ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
