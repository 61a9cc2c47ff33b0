package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"
)

// report is the result of a run.
type report struct {
	At      time.Time
	Machine machine
	// Window is the measured time of each level.
	Window time.Duration
	Note   string
	// Idle is per second, without a client.
	Idle   spent
	Levels []level
	Bare   bare
	Path   []term
	// PathSum and FinishRate are what the ratios compare with.
	PathSum    time.Duration
	FinishRate float64
	Ratios     []verdict
	Targets    []verdict
}

// verdict says whether something is as it should be.
type verdict struct {
	What, Want, Got string
	Met             bool
	// Clients is the level that it is about.
	Clients int
}

// level returns the level of a number of clients, nil if it was not measured.
func (r *report) level(clients int) *level {
	for i := range r.Levels {
		if r.Levels[i].Clients == clients {
			return &r.Levels[i]
		}
	}
	return nil
}

// judge compares the levels with the bare operations and with the targets.
func (r *report) judge() {
	r.Path, r.PathSum = r.Bare.path()
	r.FinishRate = r.Bare.finishRate()
	r.Ratios, r.Targets = nil, nil
	if l := r.level(1); l != nil {
		ratio := per(l.Turn.P50.Seconds(), r.PathSum.Seconds())
		r.Ratios = append(r.Ratios, verdict{
			What: "median turn at 1 client / sum of its bare parts", Want: "≤ 2", Got: fmt.Sprintf("%.2f", ratio), Met: ratio <= 2,
			Clients: l.Clients,
		})
		r.target(l, "p50 at 1 client", "≤ 8 ms", millis(l.Turn.P50)+" ms", l.Turn.P50 <= 8*time.Millisecond)
	}
	r.share(16, 0.25)
	r.share(256, 0.60)
	if l := r.level(16); l != nil {
		r.target(l, "turns/s at 16 clients", "≥ 500", fmt.Sprintf("%.0f", l.TurnsPerSec), l.TurnsPerSec >= 500)
		r.target(l, "p99 at 16 clients", "≤ 60 ms", millis(l.Turn.P99)+" ms", l.Turn.P99 <= 60*time.Millisecond)
	}
	if l := r.level(64); l != nil {
		r.target(l, "turns/s at 64 clients", "≥ 1 000", fmt.Sprintf("%.0f", l.TurnsPerSec), l.TurnsPerSec >= 1000)
	}
}

func (r *report) target(l *level, what, want, got string, met bool) {
	r.Targets = append(r.Targets, verdict{What: what, Want: want, Got: got, Met: met, Clients: l.Clients})
}

// share compares the rate at a number of clients with the bare finish rate.
func (r *report) share(clients int, least float64) {
	l := r.level(clients)
	if l == nil {
		return
	}
	got := per(l.TurnsPerSec, r.FinishRate)
	r.Ratios = append(r.Ratios, verdict{
		What: fmt.Sprintf("turns/s at %d clients / bare finishes/s", clients), Want: fmt.Sprintf("≥ %.0f %%", least*100),
		Got: fmt.Sprintf("%.0f %%", got*100), Met: got >= least, Clients: clients,
	})
}

// Misses says for every level at which something is missed what the CPU table says about it.
func (r *report) Misses() []string {
	missed := map[int]bool{}
	for _, v := range slices.Concat(r.Targets, r.Ratios) {
		missed[v.Clients] = missed[v.Clients] || !v.Met
	}
	var lines []string
	for i := range r.Levels {
		if l := &r.Levels[i]; missed[l.Clients] {
			lines = append(lines, fmt.Sprintf("At %s %s.", clientCount(l.Clients), l.why(r.Machine.Cores)))
		}
	}
	return lines
}

func clientCount(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}

// full is the share of busy processors from which on more speed only comes from less work.
const full = 0.85

// why reads the CPU table of a level: are the processors full, and of what.
func (l *level) why(cores int) string {
	top := strings.Join(l.top(3), ", ")
	if l.Busy >= full {
		return fmt.Sprintf("the processors are full (%.0f %%): a turn costs %.2f ms of CPU, which %d cores do %.0f times a second; most of it is %s",
			l.Busy*100, l.CPUTotal*1000, cores, per(float64(cores), l.CPUTotal), top)
	}
	return fmt.Sprintf("the processors are %.0f %% busy, so the time goes into waiting: disk syncs, hops and wake-ups; the CPU goes to %s",
		l.Busy*100, top)
}

// top names the processes that use most.
func (l *level) top(n int) []string {
	names := l.names()
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case l.CPU[a] > l.CPU[b]:
			return -1
		case l.CPU[a] < l.CPU[b]:
			return 1
		default:
			return 0
		}
	})
	var out []string
	for _, name := range names[:min(n, len(names))] {
		out = append(out, fmt.Sprintf("%s %.0f %%", name, 100*per(l.CPU[name], l.CPUTotal)))
	}
	return out
}

// names of the processes in the order of the way of a message.
func (l *level) names() []string {
	all := []string{nameIngress, nameNATS, nameRouter, nameRedis, namePostgres, nameWorker, nameEgress, nameClients}
	return slices.DeleteFunc(all, func(name string) bool { _, ok := l.CPU[name]; return !ok })
}

// Foreign is the largest share of the processors that others used while something was measured.
func (r *report) Foreign() float64 {
	most := r.Bare.Foreign
	for _, l := range r.Levels {
		most = max(most, l.Foreign)
	}
	return most
}

// Processes names the processes of the CPU table.
func (r *report) Processes() []string {
	if len(r.Levels) == 0 {
		return nil
	}
	return r.Levels[0].names()
}

// failed is the error of a run in which turns failed.
func (r *report) failed() error {
	var errs []error
	for _, l := range r.Levels {
		if l.Errors > 0 {
			errs = append(errs, fmt.Errorf("%s: %d errors, the first: %w", clientCount(l.Clients), l.Errors, l.problems[0]))
		}
	}
	return errors.Join(errs...)
}

//go:embed report.md.tmpl
var reportTemplate string

func (r *report) markdown(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"ms":      millis,
		"percent": func(share float64) string { return fmt.Sprintf("%.0f", share*100) },
		"cpu":     func(seconds float64) string { return fmt.Sprintf("%.2f", seconds*1000) },
		"met": func(met bool) string {
			if met {
				return "met"
			}
			return "**missed**"
		},
	}).Parse(reportTemplate)
	if err != nil {
		return fmt.Errorf("parse the template of the report: %w", err)
	}
	if err := t.Execute(w, r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// millis prints with three digits.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.2f", ms)
	}
}

func (r *report) print(w io.Writer, format string) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
		return nil
	}
	return r.markdown(w)
}

// save replaces the document, if one is wanted and all turns were answered.
func (r *report) save(path string) error {
	if path == "" || r.failed() != nil {
		return nil
	}
	var b strings.Builder
	if err := r.markdown(&b); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a document that everybody may read
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
