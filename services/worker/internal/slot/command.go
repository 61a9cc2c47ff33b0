package slot

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

const (
	commandBuffer = 64
	// obeyed is the answer to a command that was carried out; any other text says why it was not.
	obeyed = "ok"
)

// obey carries out what operators ask of this worker, one command after the other, until ctx ends.
func (p *Puller) obey(ctx context.Context, sub bus.Subscription, commands <-chan bus.Msg) {
	defer func() {
		if err := sub.Close(); err != nil {
			p.Logger.DebugContext(ctx, "listener not closed", "worker_id", p.cfg.WorkerID, "err", err)
		}
	}()
	var soft <-chan time.Time
	for {
		select {
		case m := <-commands:
			p.answer(ctx, m, p.execute(ctx, m.Data))
			if soft == nil && p.reached(leaving) && p.cfg.Grace > 0 {
				soft = time.After(time.Duration(float64(p.cfg.Grace) * cmp.Or(p.cfg.DrainSoft, DefaultSoft)))
			}
		case <-soft:
			p.enter(handingOver)
		case <-ctx.Done():
			return
		}
	}
}

func (p *Puller) answer(ctx context.Context, m bus.Msg, err error) {
	text := obeyed
	if err != nil {
		p.Logger.WarnContext(ctx, "command refused", "worker_id", p.cfg.WorkerID, "err", err)
		text = err.Error()
	}
	if m.Reply == "" {
		return
	}
	if err := p.Bus.Notify(ctx, bus.Msg{Subject: m.Reply, Data: []byte(text)}); err != nil { // who asked asks again
		p.Logger.DebugContext(ctx, "command not answered", "worker_id", p.cfg.WorkerID, "err", err)
	}
}

func (p *Puller) execute(ctx context.Context, data []byte) error {
	var c runv1.WorkerCommand
	if err := proto.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("read command: %w", err)
	}
	switch c.GetKind() {
	case runv1.WorkerCommandKind_WORKER_COMMAND_KIND_DRAIN:
		p.Logger.InfoContext(ctx, "draining on command", "worker_id", p.cfg.WorkerID)
		return p.leave(ctx)
	case runv1.WorkerCommandKind_WORKER_COMMAND_KIND_KILL_RUN:
		return p.kill(ctx, c.GetRunId())
	default:
		return fmt.Errorf("command %s is not supported", c.GetKind())
	}
}

// kill ends what this worker does for a run. The store has taken the run from it already, so there is nothing to write.
func (p *Puller) kill(ctx context.Context, runID string) error {
	id, err := uuid.Parse(runID)
	if err != nil {
		return fmt.Errorf("run id: %w", err)
	}
	found := false
	for _, h := range p.Control.All() {
		if h.RunID == id {
			h.Lose()
			found = true
		}
	}
	if !found {
		return fmt.Errorf("run %s is not here", id)
	}
	p.Logger.InfoContext(ctx, "run killed on command", "run_id", id)
	return nil
}
