package accept

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
)

// Emitter tells observers what happened; it never blocks.
type Emitter interface {
	Emit(ev event.Lifecycle)
}

// Bus stores messages, and apart from them what is too large for one.
type Bus interface {
	bus.Publisher
	PutObject(ctx context.Context, name string, data []byte) error
}

// Deps are what an Acceptor works with.
type Deps struct {
	Bus     Bus
	Emitter Emitter
	Logger  *slog.Logger
	Tracer  trace.Tracer
}

// Acceptor accepts messages.
type Acceptor struct {
	deps  Deps
	lanes lanes
}

// New returns an Acceptor.
func New(d Deps) *Acceptor {
	return &Acceptor{deps: d, lanes: lanes{byKey: map[string]*lane{}}}
}

// DefaultDeadline bounds Accept where the caller's context does not end earlier.
const DefaultDeadline = 10 * time.Second

// MaxBytes bounds an encoded message. One over event.MaxEncodedBytes goes into the object store, and its rest over the bus.
const MaxBytes = event.MaxTextBytes

// Accept cleans and checks m, publishes it and returns when it is stored. Empty UID, SKey, Kind and ReceivedAt are
// filled in, the kind of a slash command becomes command: m is changed and must not be used by others meanwhile.
//
// Errors: *InvalidError (nothing was stored and nothing will be), ErrUnavailable (the broker gave no answer before the
// deadline; the message may be stored all the same, and repeating it with the same id is safe), or the context's.
func (a *Acceptor) Accept(ctx context.Context, m *event.Message) (Receipt, error) {
	if err := prepare(m); err != nil {
		return Receipt{}, err
	}
	data, err := event.Encode(m)
	if err != nil {
		return Receipt{}, &InvalidError{Field: "message", Problem: err.Error()}
	}
	if len(data) > MaxBytes {
		return Receipt{}, tooLarge(len(data), MaxBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultDeadline)
	defer cancel()
	leave, err := a.lanes.enter(ctx, m.SKey)
	if err != nil {
		return Receipt{}, unavailable(ctx, err)
	}
	defer leave()
	ack, err := a.store(ctx, m, data)
	if err != nil {
		return Receipt{}, err
	}
	if !ack.Duplicate {
		a.deps.Emitter.Emit(event.Lifecycle{
			Type: event.MessageReceived, Tenant: m.Tenant, SKey: m.SKey, MsgUID: m.UID, At: m.ReceivedAt,
			Outcome: "ok", Address: m.ReplyTo, Profile: m.Profile, Size: int64(len(data)),
		})
	}
	return Receipt{UID: m.UID, SKey: m.SKey, Duplicate: ack.Duplicate}, nil
}

// store publishes the message. One that is too large for the bus is stored as an object first, so that nothing refers to
// what is not there.
func (a *Acceptor) store(ctx context.Context, m *event.Message, data []byte) (bus.Ack, error) {
	if len(data) <= event.MaxEncodedBytes {
		return a.publish(ctx, m, data)
	}
	// With the hash of the content: a repetition with another body must not replace the object of the message that counts.
	sum := sha256.Sum256(data)
	ref := "msg/" + m.UID + "/" + hex.EncodeToString(sum[:8])
	rest, err := event.Encode(m.Detached(ref))
	if err != nil {
		return bus.Ack{}, &InvalidError{Field: "message", Problem: err.Error()}
	}
	if len(rest) > event.MaxEncodedBytes {
		return bus.Ack{}, tooLarge(len(rest), event.MaxEncodedBytes)
	}
	if err := a.deps.Bus.PutObject(ctx, ref, data); err != nil {
		a.deps.Logger.WarnContext(ctx, "message not accepted", "skey", m.SKey, "msg_uid", m.UID, "err", err)
		return bus.Ack{}, unavailable(ctx, err)
	}
	a.deps.Logger.InfoContext(ctx, "message stored as an object", "skey", m.SKey, "msg_uid", m.UID, "bytes", len(data))
	return a.publish(ctx, m, rest)
}

// publish sends the message once: the bus repeats by itself what may be repeated, within the deadline.
func (a *Acceptor) publish(ctx context.Context, m *event.Message, data []byte) (ack bus.Ack, err error) {
	msg := bus.Msg{Subject: bus.IngestSubject(m.Tenant, m.SKey), ID: m.UID, Data: data}
	ctx, span := telemetry.StartPublish(ctx, a.deps.Tracer, telemetry.TemplateIngest, &msg)
	defer func() { telemetry.EndSpan(span, err) }()
	ack, err = a.deps.Bus.Publish(ctx, msg)
	switch {
	case err == nil:
		return ack, nil
	case errors.Is(err, bus.ErrTooLarge):
		return bus.Ack{}, tooLarge(len(data), event.MaxEncodedBytes)
	default:
		a.deps.Logger.WarnContext(ctx, "message not accepted", "skey", m.SKey, "msg_uid", m.UID, "err", err)
		return bus.Ack{}, unavailable(ctx, err)
	}
}

// unavailable tells a caller that went away from a broker that does not answer.
func unavailable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("accept message: %w", cause)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func tooLarge(size, allowed int) *InvalidError {
	return &InvalidError{
		Field: "message", TooLarge: true,
		Problem: fmt.Sprintf("%d bytes encoded, at most %d are allowed", size, allowed),
	}
}
