package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
)

// deliver tries one row and says what becomes of it.
//
//nolint:spancheck // EndSpan ends it, on the only path
func (d *Deliverer) deliver(ctx context.Context, j *job) {
	ctx, span := d.deps.Tracer.Start(event.WithTraceparent(ctx, j.Traceparent), "send "+j.Platform,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("hermes.platform", j.Platform),
			attribute.Int64("hermes.out_seq", j.OutSeq),
			attribute.Int("hermes.attempt", j.Attempts),
		))
	v := d.try(ctx, j)
	span.SetAttributes(attribute.String("hermes.outcome", v.outcome()))
	telemetry.EndSpan(span, v.err)
	d.finish(ctx, j, v)
}

// try sends what is left of the row, in order.
func (d *Deliverer) try(ctx context.Context, j *job) verdict {
	target, parts, err := j.content()
	if err != nil {
		return dead(err)
	}
	if !worthTrying(&j.Delivery, j.lane.sender.Capability(), j.age()) {
		return unknown(errOutcomeUnknown)
	}
	if len(parts) > 1 && j.Plan == nil {
		if v, ok := d.record(ctx, j, channel.EncodeParts(parts...)); !ok {
			return v
		}
	}
	for i := j.SentParts; i < len(parts); i++ {
		if time.Since(j.held) >= sendStart {
			return putOff(0, errors.New("the claim is too old to send"))
		}
		id, err := d.send(ctx, j, target, parts[i], i+1)
		if err != nil {
			return d.failed(ctx, j, target, err)
		}
		j.ids = append(j.ids, id)
		if i+1 < len(parts) {
			if v, ok := d.record(ctx, j, nil); !ok {
				return v
			}
		}
	}
	return sent()
}

// content reads the row: where it goes, how it was cut, and what has gone out before.
func (j *job) content() (target event.Address, parts []channel.Part, err error) {
	if err := json.Unmarshal(j.Target, &target); err != nil {
		return target, nil, fmt.Errorf("read target: %w", err)
	}
	raw := j.Plan
	if raw == nil {
		raw = j.Parts
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return target, nil, fmt.Errorf("read parts: %w", err)
	}
	if j.Plan == nil {
		parts = j.lane.sender.Split(parts)
	}
	if j.PlatformIDs != nil {
		if err := json.Unmarshal(j.PlatformIDs, &j.ids); err != nil {
			return target, nil, fmt.Errorf("read platform ids: %w", err)
		}
	}
	return target, parts, nil
}

func (j *job) age() time.Duration { return time.Since(j.CreatedAt) }

// send sends one part; number counts from 1. A chat that has moved is followed once.
func (d *Deliverer) send(ctx context.Context, j *job, target event.Address, part channel.Part, number int) (string, error) {
	id, err := d.sendTo(ctx, j, target, part, strconv.Itoa(number))
	if e, ok := errors.AsType[*channel.SendError](err); ok && e.Class == channel.Moved && e.MovedTo != "" {
		target.ChatID = e.MovedTo
		id, err = d.sendTo(ctx, j, target, part, strconv.Itoa(number))
	}
	return id, err
}

func (d *Deliverer) sendTo(ctx context.Context, j *job, target event.Address, part channel.Part, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SendTimeout)
	defer cancel()
	id, err := j.lane.sender.Send(ctx, channel.Send{
		Target: target, Part: part, IdemKey: j.DKey + ":" + key, RunID: j.runID(), CreatedAt: j.CreatedAt,
	})
	// The store takes neither NUL nor broken text.
	return strings.ReplaceAll(strings.ToValidUTF8(id, "\uFFFD"), "\x00", ""), err // classified by its class
}

const lostPart = "The rest of this reply could not be delivered."

// failed judges a failed part. If the row is lost after some of it was shown, one notice is tried.
func (d *Deliverer) failed(ctx context.Context, j *job, target event.Address, err error) verdict {
	v := afterFailure(err, &j.Delivery, j.lane.sender.Capability(), j.age())
	if v.state == store.OutDead && len(j.ids) > 0 && time.Since(j.held) < sendStart {
		if _, err := d.sendTo(ctx, j, target, channel.Part{Markdown: lostPart, Notice: true}, "lost"); err != nil {
			d.deps.Logger.DebugContext(ctx, "notice of a lost part not sent", "skey", j.SKey, "err", err)
		}
	}
	return v
}

// record stores the progress, and the plan if there is one, and extends the claim. Without it nothing more is sent.
func (d *Deliverer) record(ctx context.Context, j *job, plan json.RawMessage) (verdict, bool) {
	p := store.PartSent{
		SKey: j.SKey, OutSeq: j.OutSeq, Sender: j.sender, SentParts: len(j.ids), PlatformIDs: j.encodedIDs(), Plan: plan,
	}
	var begin time.Time
	err := d.persist(ctx, j.held.Add(sendStart), func(ctx context.Context) error {
		begin = time.Now()
		return d.deps.Outbox.RecordPart(ctx, p) // wrapped below
	})
	switch {
	case err == nil:
		j.held = begin
		return verdict{}, true
	case errors.Is(err, store.ErrRejected):
		return dead(fmt.Errorf("record part: %w", err)), false
	default: // fenced, or the claim ends by itself
		return dropped(fmt.Errorf("record part: %w", err)), false
	}
}

func (j *job) encodedIDs() json.RawMessage {
	if len(j.ids) == 0 {
		return nil
	}
	raw, err := json.Marshal(j.ids)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return raw
}
