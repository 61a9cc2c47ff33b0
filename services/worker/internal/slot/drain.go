package slot

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hermes-runtime/hermes/services/worker/internal/control"
)

// stage is how far the end of a worker has come.
type stage int32

const (
	// leaving: runs are handed over at their next step boundary; handingOver: wherever they are; abandoning: the rest is
	// left to the sweeper.
	leaving stage = iota + 1
	handingOver
	abandoning
)

// Shares of the time to stop after which runs are handed over wherever they are, and are abandoned.
const (
	DefaultSoft = 0.6
	DefaultHard = 0.8
)

// Stop pulls nothing more, gives unstarted messages back, and hands over the runs in hand, each at its next step
// boundary; who comes to an end before that ends. After 60 % of the time until ctx ends, the others are cancelled and
// handed over from where they are. After 80 % they are abandoned: the sweeper takes over what did not end. The shares
// are those of Config.
func (p *Puller) Stop(ctx context.Context) error {
	err := p.leave(ctx)
	ended := make(chan struct{})
	go func() {
		p.runs.Wait()
		close(ended)
	}()
	p.drain(ctx, ended)
	return errors.Join(err, p.services.Stop(context.WithoutCancel(ctx)))
}

// leave ends the pulling and asks the runs in hand to leave.
func (p *Puller) leave(ctx context.Context) error {
	err := p.pulls.Stop(context.WithoutCancel(ctx)) // a pull ends at once
	p.enter(leaving)
	select {
	case p.drained <- struct{}{}:
	default: // it is known
	}
	return err
}

// Ready returns control.ErrDraining once the worker takes no more runs.
func (p *Puller) Ready(context.Context) error {
	if p.reached(leaving) {
		return control.ErrDraining
	}
	return nil
}

func (p *Puller) drain(ctx context.Context, ended <-chan struct{}) {
	soft := share(ctx, cmp.Or(p.cfg.DrainSoft, DefaultSoft))
	hard := share(ctx, cmp.Or(p.cfg.DrainHard, DefaultHard))
	if waitFor(ended, soft, ctx.Done()) {
		return
	}
	p.Logger.WarnContext(ctx, "runs are cancelled for the drain", "count", p.room.used())
	p.enter(handingOver)
	if waitFor(ended, hard, ctx.Done()) {
		return
	}
	p.enter(abandoning)
	if !waitFor(ended, nil, ctx.Done()) {
		p.Logger.ErrorContext(ctx, "runs do not end", "count", p.room.used())
	}
}

func (p *Puller) reached(s stage) bool { return p.stage.Load() >= int32(s) }

// enter tells the runs in hand of the new stage; those that come later learn it from catchUp. There is no way back.
func (p *Puller) enter(s stage) {
	for was := p.stage.Load(); was < int32(s) && !p.stage.CompareAndSwap(was, int32(s)); {
		was = p.stage.Load()
	}
	for _, h := range p.Control.All() {
		p.catchUp(h)
	}
}

// catchUp tells a run, which must be known to Control, of the stage.
func (p *Puller) catchUp(h *control.Handle) {
	if p.reached(leaving) {
		h.Leave()
	}
	if p.reached(handingOver) {
		h.HandOver()
	}
	if p.reached(abandoning) {
		h.Abandon()
	}
}

// share fires when a share of the time until ctx ends has passed; never if it has no end.
func share(ctx context.Context, of float64) <-chan time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return time.After(time.Duration(float64(time.Until(end)) * of))
}

func waitFor(ended <-chan struct{}, deadline <-chan time.Time, end <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-deadline:
		return false
	case <-end:
		return false
	}
}
