package agent

import (
	"context"
	"fmt"
	"time"
)

// abandonAfter is how long calls that run may take to end after the context of their run has.
const abandonAfter = 2 * time.Second

// flight is a group of calls on their way. It belongs to the goroutine of the run; the calls have one each and leave
// what they have to say in back, where it stays if nobody waits for it any more.
type flight struct {
	*runner
	group []*pending
	// waiting are not started yet, out are on their way: indexes of group.
	waiting []int
	out     map[int]bool
	back    chan landing

	reports  []report
	panicked any
}

type landing struct {
	i        int
	report   report
	panicked any
}

// together executes the ready calls of a group, at most ParallelTools at once. reports[i] belongs to group[i]. A panic is
// raised again in the goroutine of the run, which is the one that recovers.
func (r *runner) together(ctx context.Context, group []*pending) []report {
	f := &flight{
		runner: r, group: group, out: map[int]bool{}, back: make(chan landing, len(group)), reports: make([]report, len(group)),
	}
	for i, p := range group {
		if p.ready() {
			f.waiting = append(f.waiting, i)
		}
	}
	f.fly(ctx)
	if f.panicked != nil {
		panic(f.panicked)
	}
	return f.reports
}

// fly returns when all calls are back, or some time after ctx has ended.
func (f *flight) fly(ctx context.Context) {
	ended := ctx.Done()
	var late <-chan time.Time
	for f.start(ctx); len(f.out) > 0; f.start(ctx) {
		select {
		case l := <-f.back:
			f.land(l)
		case <-ended:
			ended, late = nil, time.After(abandonAfter)
		case <-late:
			f.abandonAll(context.Cause(ctx))
			return
		}
	}
}

// start begins calls while there is room; none once the run may start nothing.
func (f *flight) start(ctx context.Context) {
	for len(f.waiting) > 0 && len(f.out) < f.cfg.ParallelTools {
		i := f.waiting[0]
		f.waiting = f.waiting[1:]
		if err := f.mayStart(ctx); err != nil {
			f.reports[i].err = err
			continue
		}
		f.group[i].started, f.out[i] = true, true
		f.deps.Go(func() { f.back <- f.one(ctx, i) })
	}
}

func (f *flight) one(ctx context.Context, i int) (l landing) {
	l.i = i
	defer func() {
		if v := recover(); v != nil {
			l.panicked = fmt.Sprintf("tool %s: %v", f.group[i].call.Name, v)
		}
	}()
	l.report = f.runCall(ctx, f.group[i])
	return l
}

func (f *flight) land(l landing) {
	delete(f.out, l.i)
	f.reports[l.i] = l.report
	if f.panicked == nil {
		f.panicked = l.panicked
	}
}

// abandonAll gives up the calls that are out.
func (f *flight) abandonAll(cause error) {
	for i := range f.out {
		f.reports[i].err = cause
	}
}
