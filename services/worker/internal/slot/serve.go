package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
)

const (
	// inARow is how many runs of one session a slot serves before others get their turn.
	inARow = 8
	// doorbellTimeout bounds a publish; a lost doorbell is rung by the sweeper.
	doorbellTimeout = 5 * time.Second
)

// start is a run that may be begun.
type start struct {
	fence store.Fence
	pool  string
	// work is the doorbell to be acknowledged; nil if the slot goes on by itself.
	work bus.Work
}

func (p *Puller) newStart(pool, skey string, gen int64, runID uuid.UUID) *start {
	return &start{fence: store.Fence{SKey: skey, Gen: gen, RunID: runID, Owner: p.newOwner()}, pool: pool}
}

// newOwner names this worker with a nonce that no other claim has.
func (p *Puller) newOwner() string { return p.cfg.WorkerID + "/" + uuid.NewString() }

// decode reads doorbells; one that cannot be read is dropped, since the store knows every run.
func (p *Puller) decode(ctx context.Context, pool string, works []bus.Work) []*start {
	starts := make([]*start, 0, len(works))
	for _, w := range works {
		var d runv1.Dispatch
		err := proto.Unmarshal(w.Msg().Data, &d)
		runID, idErr := uuid.Parse(d.GetRunId())
		if err = errors.Join(err, idErr); err != nil {
			p.Logger.WarnContext(ctx, "doorbell unreadable", "err", err)
			p.settle(ctx, &start{work: w}, bus.Work.Ack)
			continue
		}
		s := p.newStart(pool, d.GetSkey(), d.GetGen(), runID)
		s.work = w
		starts = append(starts, s)
	}
	return starts
}

func (p *Puller) giveBack(ctx context.Context, starts []*start) {
	for _, s := range starts {
		p.settle(ctx, s, bus.Work.Nak)
	}
}

// settle acknowledges the doorbell, or gives it back.
func (p *Puller) settle(ctx context.Context, s *start, how func(bus.Work) error) {
	if s.work == nil {
		return
	}
	if err := how(s.work); err != nil { // it comes again and finds the run claimed
		p.Logger.DebugContext(ctx, "doorbell not settled", "skey", s.fence.SKey, "err", err)
	}
}

// serve runs what a doorbell names, and then the runs that queue up behind it. ctx ends with the pulling.
func (p *Puller) serve(ctx context.Context, s *start) {
	mute, err := p.listen(s.fence.SKey)
	if err != nil {
		p.Logger.WarnContext(ctx, "run not started", "skey", s.fence.SKey, "run_id", s.fence.RunID, "err", err)
		p.settle(ctx, s, bus.Work.Nak)
		p.keeper.free(ctx, leaseOf(s.fence))
		return
	}
	defer mute()
	for n := 1; s != nil; n++ {
		s = p.attempt(ctx, s, n < inARow)
	}
}

// listen subscribes to what concerns the runs of a session. That comes before the claim: from then on a stop is a signal
// to this worker, and nobody else acts on it.
func (p *Puller) listen(skey string) (mute func(), err error) {
	signals, err := p.Control.Listen(skey)
	if err != nil {
		return nil, err
	}
	requests, err := p.Streams.Listen(skey)
	if err != nil {
		return nil, errors.Join(err, signals.Close())
	}
	return func() {
		if err := errors.Join(signals.Close(), requests.Close()); err != nil {
			p.Logger.Debug("listener not closed", "skey", skey, "err", err)
		}
	}, nil
}

// attempt claims and works on one run. It returns the next run of the session if this slot goes on with it.
func (p *Puller) attempt(ctx context.Context, s *start, goOn bool) *start {
	// The run outlives the pulling: the end of a worker is told to it by a drain.
	h := p.Control.Open(context.WithoutCancel(ctx), s.fence)
	defer h.Close()
	defer p.Control.Remove(h)
	p.catchUp(h)
	out := p.Streams.Open(s.fence.SKey, s.fence.Gen, s.fence.RunID.String())
	defer out.Close()
	p.keeper.hold(h)

	claimed, err := p.claim(ctx, s, h)
	if err != nil {
		p.notClaimed(ctx, s, h, err)
		return nil
	}
	p.settle(ctx, s, bus.Work.Ack)
	return p.after(ctx, s, h, p.Runner.Run(Held{Claimed: *claimed, Handle: h, Stream: out}), goOn)
}

// claim gives up when the pulling ends or the lease is lost, but never while its outcome is open.
func (p *Puller) claim(ctx context.Context, s *start, h *control.Handle) (*store.Claimed, error) {
	held, cancel := context.WithCancelCause(h.Hold())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(control.ErrDraining) })()
	claimed, at, err := p.claimer.claim(held, s.fence) //nolint:contextcheck // the lease bounds it; the end of ctx was added above
	if err != nil {
		return nil, err
	}
	h.Confirm(at)
	h.Limit(p.Runner.Limit(claimed.AgentID))
	h.Claim()
	return claimed, nil
}

// notClaimed frees the session. A doorbell that nobody has used yet goes back; any other outcome is somebody else's run,
// or one that the sweeper dispatches again.
func (p *Puller) notClaimed(ctx context.Context, s *start, h *control.Handle, err error) {
	if errors.Is(err, control.ErrDraining) {
		p.settle(ctx, s, bus.Work.Nak)
		p.keeper.release(ctx, h)
		return
	}
	p.settle(ctx, s, bus.Work.Ack)
	p.keeper.release(ctx, h)
	p.Metrics.refuse(ctx, "claim")
	if !errors.Is(err, errLost) && !errors.Is(err, agent.ErrFenced) {
		p.Logger.ErrorContext(ctx, "run not claimed", "skey", s.fence.SKey, "run_id", s.fence.RunID, "gen", s.fence.Gen, "err", err)
	}
}

// after goes on with the next run of the session, or passes it on and frees the session.
func (p *Puller) after(ctx context.Context, s *start, h *control.Handle, ended Ended, goOn bool) *start {
	if ended.NextRun == uuid.Nil {
		p.keeper.release(ctx, h)
		return nil
	}
	next := p.newStart(s.pool, s.fence.SKey, ended.NextGen, ended.NextRun)
	if goOn && ctx.Err() == nil && !ended.HandedOver {
		p.keeper.forget(h) // the next one has a higher generation and replaces it
		if p.keeper.take(ctx, leaseOf(next.fence)) {
			return next
		}
		if ctx.Err() == nil {
			p.Metrics.refuse(ctx, "lease")
			return nil
		}
	}
	p.ring(ctx, next, ended.Traceparent)
	p.keeper.release(ctx, h)
	return nil
}

// ring publishes the doorbell of a run that another slot shall take.
func (p *Puller) ring(ctx context.Context, s *start, traceparent string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doorbellTimeout)
	defer cancel()
	data, err := proto.Marshal(&runv1.Dispatch{Skey: s.fence.SKey, Gen: s.fence.Gen, RunId: s.fence.RunID.String()})
	if err == nil {
		m := bus.Msg{
			Subject: bus.RunSubject(s.pool, s.fence.SKey),
			ID:      fmt.Sprintf("%s:%d:0", s.fence.RunID, s.fence.Gen),
			Data:    data,
		}
		spanCtx, span := telemetry.StartPublish(event.WithTraceparent(ctx, traceparent), p.Tracer, telemetry.TemplateRun, &m)
		_, err = p.Bus.Publish(spanCtx, m)
		telemetry.EndSpan(span, err)
	}
	if err != nil { // the sweeper rings again
		p.Logger.WarnContext(ctx, "doorbell not rung", "skey", s.fence.SKey, "run_id", s.fence.RunID, "err", err)
	}
}
