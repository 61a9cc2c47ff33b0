package takeover

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// All that is told here may be lost: the store knows it, and the sweeper rings again.

// tellTaken lets observers know of a takeover, and workers too unless the run rests.
func (t *Taker) tellTaken(ctx context.Context, run store.ActiveRun, taken store.TakenOver, rests bool) {
	t.Events.Emit(event.Lifecycle{
		Type: event.RunTakenOver, Tenant: run.Tenant, SKey: run.SKey, RunID: taken.RunID.String(), Gen: taken.Gen,
	})
	if !rests {
		t.publish(ctx, run, func() (bus.Msg, error) { return runBell(run, taken.RunID, taken.Gen) })
	}
}

// tellDead lets deliverers know of the apology, workers of the next run, operators of the dead letter, and observers.
func (t *Taker) tellDead(ctx context.Context, d *dead, result store.FinishResult) {
	if d.delivers() && result.Known {
		t.publish(ctx, d.run, func() (bus.Msg, error) { return outBell(d, result.FirstOut) })
	}
	if result.RunID != uuid.Nil {
		t.publish(ctx, d.run, func() (bus.Msg, error) { return runBell(d.run, result.RunID, result.Gen) })
	}
	t.publish(ctx, d.run, func() (bus.Msg, error) { return deadBell(d) })
	kinds := []event.Type{event.RunDead, event.RunFinished}
	if !d.delivers() {
		kinds = append(kinds, event.ProcessingCompleted)
	}
	for _, kind := range kinds {
		t.Events.Emit(d.lifecycle(kind))
	}
}

// delivers reports whether somebody has to send the apology.
func (d *dead) delivers() bool { return len(d.form.Replies) > 0 && !d.form.Replies[0].Read }

func (d *dead) lifecycle(kind event.Type) event.Lifecycle {
	ev := event.Lifecycle{
		Type: kind, Tenant: d.run.Tenant, SKey: d.run.SKey, RunID: d.run.RunID.String(), Gen: d.run.Gen, Profile: d.profile,
		Outcome: string(store.RunDead),
	}
	if len(d.prompt) > 0 {
		ev.MsgUID = d.prompt[0].UID
	}
	if d.newest != nil {
		ev.Address = d.newest.ReplyTo
	}
	return ev
}

func (t *Taker) publish(ctx context.Context, run store.ActiveRun, encode func() (bus.Msg, error)) {
	m, err := encode()
	if err == nil {
		_, err = t.Bus.Publish(ctx, m)
	}
	if err != nil {
		t.Logger.WarnContext(ctx, "doorbell of a takeover not published", "skey", run.SKey, "run_id", run.RunID, "err", err)
	}
}

func runBell(run store.ActiveRun, id uuid.UUID, gen int64) (bus.Msg, error) {
	data, err := proto.Marshal(&runv1.Dispatch{Skey: run.SKey, Gen: gen, RunId: id.String()})
	return bus.Msg{Subject: bus.RunSubject(run.RunClass, run.SKey), ID: fmt.Sprintf("%s:%d:0", id, gen), Data: data}, err
}

func outBell(d *dead, outSeq int64) (bus.Msg, error) {
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: d.run.SKey, OutSeq: outSeq})
	return bus.Msg{
		Subject: bus.OutSubject(d.form.Replies[0].Platform, d.run.SKey), ID: fmt.Sprintf("%s:%d:0", d.run.SKey, outSeq), Data: data,
	}, err
}

// deadLetter is what operators are told; the letter itself is in the store.
type deadLetter struct {
	ID     uuid.UUID `json:"id"`
	Tenant string    `json:"tenant"`
	SKey   string    `json:"skey"`
	RunID  uuid.UUID `json:"run_id"`
	Reason string    `json:"reason"`
}

func deadBell(d *dead) (bus.Msg, error) {
	l := d.form.Letter
	data, err := json.Marshal(deadLetter{ID: l.ID, Tenant: d.run.Tenant, SKey: d.run.SKey, RunID: d.run.RunID, Reason: l.Reason})
	return bus.Msg{Subject: bus.DeadLetterSubject(store.DeadKindRun, d.run.Tenant), ID: l.ID.String(), Data: data}, err
}
