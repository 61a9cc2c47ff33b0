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
	"github.com/hermes-runtime/hermes/pkg/daemon"
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
	parts, err := j.content()
	if err != nil {
		return dead(err)
	}
	if !worthTrying(&j.Delivery, j.lane.sender.Capability(), j.age()) {
		return unknown(errOutcomeUnknown)
	}
	if wait := d.accounts.wait(accountOf(j.target), time.Now()); wait > 0 {
		return putOff(wait, errAccountPaused)
	}
	j.target = d.places.current(j.target)
	if v, ok := d.plan(ctx, j, parts); !ok {
		return v
	}
	for i := j.SentParts; i < len(parts); i++ {
		if v, ok := d.sendPart(ctx, j, parts[i], i+1); !ok {
			return v
		}
		if i+1 < len(parts) {
			if v, ok := d.record(ctx, j, nil); !ok {
				return v
			}
		}
	}
	return sent()
}

// content reads the row: where it goes, how it was cut, and what has gone out before.
func (j *job) content() (parts []channel.Part, err error) {
	if err := json.Unmarshal(j.Target, &j.target); err != nil {
		return nil, fmt.Errorf("read target: %w", err)
	}
	raw := j.Plan
	if raw == nil {
		raw = j.Parts
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, fmt.Errorf("read parts: %w", err)
	}
	if j.Plan == nil {
		parts = j.lane.sender.Split(parts)
	}
	if j.PlatformIDs != nil {
		if err := json.Unmarshal(j.PlatformIDs, &j.ids); err != nil {
			return nil, fmt.Errorf("read platform ids: %w", err)
		}
	}
	return parts, nil
}

func (j *job) age() time.Duration { return time.Since(j.CreatedAt) }

// sendPart sends one part; number counts from 1. A chat that has moved is followed, and a thread that is gone is left, two
// steps at most: nothing was sent before them.
func (d *Deliverer) sendPart(ctx context.Context, j *job, part channel.Part, number int) (verdict, bool) {
	for range 1 + maxSteps {
		if v, ok := d.admit(ctx, j); !ok {
			return v, false
		}
		id, err := d.sendTo(ctx, j, part, number)
		if err == nil {
			j.ids = append(j.ids, id)
			d.accepted(ctx, j)
			return verdict{}, true
		}
		if !d.redirect(ctx, j, &part, err) {
			return d.failed(ctx, j, err), false
		}
	}
	return dead(errRedirected), false
}

// maxSteps: from the thread of a chat that has moved to the new chat without it.
const maxSteps = 2

// redirect changes where the part goes, as err says, and reports whether it did.
func (d *Deliverer) redirect(ctx context.Context, j *job, part *channel.Part, err error) bool {
	e, ok := errors.AsType[*channel.SendError](err)
	switch {
	case !ok:
		return false
	case e.Class == channel.Moved && e.MovedTo != "" && e.MovedTo != j.target.ChatID:
		d.moved(ctx, j, e.MovedTo)
		part.EditOf = "" // the message to be replaced is in the old chat
		return true
	case e.ThreadGone && j.target.ThreadID != "":
		d.places.drop(j.target)
		j.target.ThreadID = ""
		return true
	default:
		return false
	}
}

// moved follows a chat. The alias lets later messages of the new address find the session of the old one.
func (d *Deliverer) moved(ctx context.Context, j *job, to string) {
	from := j.target
	d.places.move(from, to)
	j.target.ChatID = to
	d.jobs.Go(func() {
		if err := withTimeout(ctx, func(ctx context.Context) error { return d.learn(ctx, j.SKey, from, to) }); err != nil {
			// The next message from the new address says so as well.
			d.deps.Logger.WarnContext(ctx, "alias of a moved chat not stored", "skey", j.SKey, "err", err)
		}
	})
}

func (d *Deliverer) learn(ctx context.Context, skey string, from event.Address, to string) error {
	s, err := d.deps.Chats.Session(ctx, skey)
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	a := store.Address{Tenant: s.Tenant, Platform: from.Platform, Account: from.Account, ID: to}
	if _, err := d.deps.Chats.LearnAlias(ctx, a, from.ChatID); err != nil {
		return fmt.Errorf("learn alias: %w", err)
	}
	return nil
}

// shortWait is the longest wait for a rate that keeps a row in hand; what lasts longer gives the claim and the slot back.
const shortWait = 2 * time.Second

// admit takes what one request costs from the rates of the target. If that takes too long, or the claim is too old, the
// row is put off.
func (d *Deliverer) admit(ctx context.Context, j *job) (verdict, bool) {
	for left := shortWait; ; {
		if time.Since(j.held) >= sendStart {
			return putOff(0, errClaimTooOld), false
		}
		wait := d.gate.Wait(ctx, j.lane.sender, j.target)
		switch {
		case wait == 0:
			return verdict{}, true
		case wait > left:
			return putOff(min(wait, maxRetryAfter), errRateLimited), false
		case !daemon.Sleep(ctx, wait):
			return putOff(0, context.Cause(ctx)), false
		}
		left -= wait
	}
}

func (d *Deliverer) sendTo(ctx context.Context, j *job, part channel.Part, number int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SendTimeout)
	defer cancel()
	key := "lost"
	if number != lostNumber {
		key = strconv.Itoa(number)
	}
	id, err := j.lane.sender.Send(ctx, channel.Send{
		Target: j.target, Part: part, IdemKey: j.DKey + ":" + key, Number: number, RunID: j.runID(), CreatedAt: j.CreatedAt,
	})
	// The store takes neither NUL nor broken text.
	return strings.ReplaceAll(strings.ToValidUTF8(id, "\uFFFD"), "\x00", ""), err // classified by its class
}

const (
	lostPart = "The rest of this reply could not be delivered."
	// lostNumber takes the place of a number: the notice is no part.
	lostNumber = 0
)

// failed judges a failed part. If the row is lost after some of it was shown, one notice is tried.
func (d *Deliverer) failed(ctx context.Context, j *job, err error) verdict {
	d.gate.Freeze(ctx, j.lane.sender, j.target, err)
	v := afterFailure(err, &j.Delivery, j.lane.sender.Capability(), j.age())
	if channel.ClassOf(err) == channel.Credential {
		v.after = max(v.after, d.refused(ctx, j, err))
	}
	if v.state == store.OutDead && len(j.ids) > 0 {
		d.tellLost(ctx, j)
	}
	return v
}

func (d *Deliverer) tellLost(ctx context.Context, j *job) {
	if _, ok := d.admit(ctx, j); !ok {
		return
	}
	if _, err := d.sendTo(ctx, j, channel.Part{Markdown: lostPart, Notice: true}, lostNumber); err != nil {
		d.deps.Logger.DebugContext(ctx, "notice of a lost part not sent", "skey", j.SKey, "err", err)
	}
}

// refused pauses the account and returns for how long. Operators are told once a pause.
func (d *Deliverer) refused(ctx context.Context, j *job, err error) time.Duration {
	d.metrics.refused(ctx, j.Platform)
	pause, first := d.accounts.refuse(accountOf(j.target), time.Now())
	if first {
		d.deps.Logger.ErrorContext(ctx, "account refused by its platform, its deliveries wait",
			"platform", j.Platform, "account", j.target.Account, "err", err)
	}
	return pause
}

func (d *Deliverer) accepted(ctx context.Context, j *job) {
	if d.accounts.accept(accountOf(j.target)) {
		d.deps.Logger.InfoContext(ctx, "account accepted again", "platform", j.Platform, "account", j.target.Account)
	}
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
