package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
)

// finish carries a verdict out. Settled rows keep their slot and doorbell until they are marked.
func (d *Deliverer) finish(ctx context.Context, j *job, v verdict) {
	d.metrics.count(ctx, j.Platform, v.outcome())
	switch {
	case v.state != "":
		d.jobs.Add(1) // ends in settled
		d.marker.add(ctx, j, v)
		return
	case v.dropped:
		d.deps.Logger.WarnContext(ctx, "delivery given up, its claim was lost or ends", "skey", j.SKey, "run_id", j.runID(), "err", v.err)
	default:
		d.putOff(ctx, j, v)
	}
	d.done(ctx, j)
}

func (d *Deliverer) done(ctx context.Context, j *job) {
	d.ack(ctx, j.bell)
	j.lane.give(1)
}

func (d *Deliverer) putOff(ctx context.Context, j *job, v verdict) {
	// Also a send that was cut by the end of the process has to be put off.
	err := withTimeout(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return d.deps.Outbox.RetryDelivery(ctx, j.SKey, j.OutSeq, j.sender, v.after, v.maybe) // logged below
	})
	if err != nil && !errors.Is(err, store.ErrFenced) {
		// The claim ends by itself after a minute and counts as a try that may have reached the platform.
		d.deps.Logger.WarnContext(ctx, "delivery not put off", "skey", j.SKey, "run_id", j.runID(), "err", err)
	}
	d.deps.Logger.DebugContext(ctx, "delivery put off", "skey", j.SKey, "run_id", j.runID(), "attempt", j.Attempts, "err", v.err)
}

// settled takes rows over from the marker. A row that waits behind a marked one gets its slot.
func (d *Deliverer) settled(ctx context.Context, batch []settledJob, marked []store.Marked, given bool) {
	last := map[string]*job{}
	for _, s := range batch {
		if given { // without an acknowledgement: the doorbell rings again
			continue
		}
		d.report(ctx, s)
		d.ack(ctx, s.bell)
		last[s.SKey] = s.job
	}
	var rows []row
	var slots []*job
	for _, m := range marked {
		if m.OutSeq > m.OutSent && !d.stopping() {
			rows, slots = append(rows, row{m.SKey, m.OutSent + 1}), append(slots, last[m.SKey])
		}
	}
	for _, s := range batch {
		if !slices.Contains(slots, s.job) {
			s.lane.give(1)
		}
	}
	if len(rows) > 0 {
		d.jobs.Go(func() { d.goOn(d.work, rows, slots) })
	}
	d.jobs.Add(-len(batch))
}

// goOn claims the rows behind settled ones. slots[i] is the job whose slot rows[i] may use.
func (d *Deliverer) goOn(ctx context.Context, rows []row, slots []*job) {
	jobs, err := d.claim(ctx, rows)
	if err != nil {
		d.deps.Logger.WarnContext(ctx, "deliveries not claimed", "err", err) // the sweeper rings them
	}
	claimed := map[string]*job{}
	for _, j := range jobs {
		claimed[j.SKey] = j
	}
	for i, r := range rows {
		j := claimed[r.skey]
		switch {
		case j == nil:
			slots[i].lane.give(1)
		case j.Platform == slots[i].Platform:
			j.lane = slots[i].lane
			d.start(j)
		default:
			slots[i].lane.give(1)
			d.handOn(ctx, j)
		}
	}
}

// handOn gives back a row of another platform and rings for those who deliver there.
func (d *Deliverer) handOn(ctx context.Context, j *job) {
	err := withTimeout(ctx, func(ctx context.Context) error {
		return d.deps.Outbox.RetryDelivery(ctx, j.SKey, j.OutSeq, j.sender, 0, false) // logged below
	})
	if err == nil {
		err = d.ring(ctx, j)
	}
	if err != nil { // the sweeper rings it
		d.deps.Logger.WarnContext(ctx, "delivery not handed on", "skey", j.SKey, "err", err)
	}
}

func (d *Deliverer) ring(ctx context.Context, j *job) error {
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: j.SKey, OutSeq: j.OutSeq})
	if err != nil {
		return fmt.Errorf("encode doorbell: %w", err)
	}
	_, err = d.deps.Bus.Publish(ctx, bus.Msg{
		Subject: bus.OutSubject(j.Platform, j.SKey), ID: fmt.Sprintf("%s:%d:%s", j.SKey, j.OutSeq, j.sender), Data: data,
	})
	if err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	return nil
}

// report tells observers about a settled row.
func (d *Deliverer) report(ctx context.Context, s settledJob) {
	d.metrics.age(ctx, s.Platform, s.verdict.outcome(), s.age())
	ev := event.Lifecycle{
		Type: event.ResponseSent, Tenant: s.Tenant, SKey: s.SKey, RunID: s.runID(), MsgUID: s.msgUID(), OutSeq: s.OutSeq,
		Outcome: s.verdict.outcome(), Size: int64(len(s.Parts)), Duration: s.age(),
	}
	if err := json.Unmarshal(s.Target, &ev.Address); err != nil {
		ev.Address = event.Address{Platform: s.Platform} // a row that could not be read, either
	}
	if s.verdict.state != store.OutSent {
		ev.Type = event.DeliveryFailed
		d.deps.Logger.WarnContext(ctx, "reply not delivered", "skey", s.SKey, "run_id", s.runID(), "attempt", s.Attempts, "err", s.verdict.err)
	}
	d.deps.Emitter.Emit(ev)
	ev.Type = event.ProcessingCompleted
	d.deps.Emitter.Emit(ev)
	if s.verdict.state == store.OutDead {
		d.jobs.Go(func() { d.deadLetter(d.work, s) })
	}
}

// letter is what operators are told; the truth is in the store.
type letter struct {
	// ID is that of the stored letter.
	ID     string `json:"id"`
	SKey   string `json:"skey"`
	OutSeq int64  `json:"out_seq"`
	DKey   string `json:"dkey"`
	RunID  string `json:"run_id,omitempty"`
	Reason string `json:"reason"`
}

func (d *Deliverer) deadLetter(ctx context.Context, s settledJob) {
	l := letter{
		ID: s.letter.String(), SKey: s.SKey, OutSeq: s.OutSeq, DKey: s.DKey, RunID: s.runID(), Reason: s.verdict.reason(),
	}
	data, err := json.Marshal(l)
	if err == nil {
		_, err = d.deps.Bus.Publish(ctx, bus.Msg{
			Subject: bus.DeadLetterSubject("out", s.Platform), ID: fmt.Sprintf("%s:%d:dead", s.SKey, s.OutSeq), Data: data,
		})
	}
	if err != nil {
		d.deps.Logger.WarnContext(ctx, "dead letter not published", "skey", s.SKey, "err", err)
	}
}

func (j *job) runID() string {
	if j.RunID == uuid.Nil {
		return ""
	}
	return j.RunID.String()
}

// msgUID is the message that a notice answers: rows without a run are keyed by it.
func (j *job) msgUID() string {
	if j.RunID != uuid.Nil {
		return ""
	}
	uid, _, _ := strings.Cut(j.DKey, ":")
	return uid
}
