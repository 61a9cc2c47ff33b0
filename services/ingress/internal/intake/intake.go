package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Acceptor stores messages; its errors are those of [accept.Acceptor].
type Acceptor interface {
	Accept(ctx context.Context, m *event.Message) (accept.Receipt, error)
}

// Deps are what an Intake works with.
type Deps struct {
	Acceptor Acceptor
	// Aliases may answer late or not at all: messages are accepted all the same. Only what teaches an alias waits for them.
	Aliases store.Aliases
	Emitter accept.Emitter
	Logger  *slog.Logger
	Meter   metric.Meter
	Now     func() time.Time
	// AlbumWait is how long the first item of an album waits for the others.
	AlbumWait time.Duration
}

// DefaultAlbumWait suits the platforms that send albums item by item: they do so in a few hundred milliseconds.
const DefaultAlbumWait = time.Second

// Intake takes what comes in.
type Intake struct {
	deps    Deps
	aliases *resolver
	albums  *albums
	loops   daemon.Loops
	ignored metric.Int64Counter
	skipped metric.Int64Counter
}

// New returns an Intake; it joins albums once it is started.
func New(d Deps) (*Intake, error) {
	ignored, errIgnored := d.Meter.Int64Counter("hermes_ingress_ignored_total",
		metric.WithDescription("Events of platforms that start no turn, by channel and reason."))
	skipped, errSkipped := d.Meter.Int64Counter("hermes_ingress_skipped_total",
		metric.WithDescription("Events of platforms that cannot be read or stored, by channel."))
	if err := errors.Join(errIgnored, errSkipped); err != nil {
		return nil, fmt.Errorf("intake metrics: %w", err)
	}
	i := &Intake{deps: d, aliases: newResolver(d), ignored: ignored, skipped: skipped}
	i.albums = &albums{open: map[albumKey]*album{}, loops: &i.loops, wait: d.AlbumWait, finish: i.acceptAlbum}
	return i, nil
}

// Start makes ready for albums.
func (i *Intake) Start(ctx context.Context) error {
	// The first goroutine gives the others the context that they live in: that of the service, not that of a request.
	i.loops.Go(ctx, func(context.Context) {})
	return nil
}

// Stop gives up albums that are not complete: their items were not acknowledged and come again. It must come after that
// of everything that calls Take.
func (i *Intake) Stop(ctx context.Context) error { return i.loops.Stop(ctx) }

// Take returns nil when the event may be acknowledged. An item of an album waits for its siblings, AlbumWait at most.
//
// Errors: *accept.InvalidError if no repetition will make the event acceptable, see [Intake.Skip]; all others mean that
// it has to come again.
func (i *Intake) Take(ctx context.Context, d *Door, in channel.Incoming) error {
	switch {
	case in.Moved != nil:
		return i.learn(ctx, d, in)
	case in.Ignore != "" && in.Kind != event.KindEdit && in.Album == "":
		i.ignore(ctx, d, in, in.Ignore)
		return nil
	}
	chat := i.aliases.canonical(ctx, d.address(in.Source))
	switch {
	case !d.Allow.admits(in.Source, chat):
		return i.refuse(ctx, d, in, chat)
	case in.Album != "" && in.Kind != event.KindEdit:
		return i.albums.join(ctx, d, in, chat)
	default:
		return i.accept(ctx, d.message(in, chat))
	}
}

func (i *Intake) accept(ctx context.Context, m *event.Message) error {
	m.ReceivedAt = i.deps.Now().UTC()
	_, err := i.deps.Acceptor.Accept(ctx, m)
	return err // it says what it was doing
}

// learn stores that a chat has a second id before the platform hears that we know.
func (i *Intake) learn(ctx context.Context, d *Door, in channel.Incoming) error {
	newer := d.address(in.Source)
	newer.ID = in.Moved.To
	if err := i.aliases.learn(ctx, newer, in.Moved.From); err != nil {
		return fmt.Errorf("learn the new id of a chat: %w", err)
	}
	i.deps.Logger.InfoContext(ctx, "chat has moved", "channel", d.Name)
	return nil
}

// reasonStranger: the sender is not on the allow-list, and did not ask the bot for anything.
const reasonStranger = "stranger"

// refuse answers a stranger, once a day in a chat and only if the bot was spoken to. What the stranger wrote goes no
// further than this.
func (i *Intake) refuse(ctx context.Context, d *Door, in channel.Incoming, chat string) error {
	if in.Ignore != "" {
		i.ignore(ctx, d, in, in.Ignore)
		return nil
	}
	if in.Source.ChatType != chatDM && !in.MentionsBot {
		i.ignore(ctx, d, in, reasonStranger)
		return nil
	}
	in.Source.ThreadID, in.Source.ProspectiveThread = "", "" // one session for the refusals of all threads
	m := d.message(channel.Incoming{
		Kind: event.KindMessage, Source: in.Source, ReplyTo: in.ReplyTo, SentAt: in.SentAt,
		MessageID: "stranger:" + in.Source.UserID + ":" + i.deps.Now().UTC().Format(time.DateOnly),
	}, chat)
	m.Refusal = event.RefusedStranger
	return i.accept(ctx, m)
}

// ignore gives account of an event that starts no turn. Its identity stays free for a copy that may.
func (i *Intake) ignore(ctx context.Context, d *Door, in channel.Incoming, reason string) {
	i.ignored.Add(ctx, 1, metric.WithAttributes(attribute.String("channel", d.Name), attribute.String("reason", reason)))
	if in.Source.ChatID == "" {
		return // it belongs to no session
	}
	m := d.message(in, i.aliases.known(d.address(in.Source)))
	i.deps.Emitter.Emit(event.Lifecycle{
		Type: event.MessageIgnored, Tenant: m.Tenant, SKey: m.SKey, MsgUID: m.UID, At: i.deps.Now().UTC(),
		Outcome: reason, Address: m.ReplyTo, Profile: m.Profile,
	})
}

// Skip gives account of an event that will never be accepted. It is acknowledged, or it would stand in the way of those
// behind it for ever. id is the platform's id of the event.
func (i *Intake) Skip(ctx context.Context, d *Door, id string, err error) {
	i.skipped.Add(ctx, 1, metric.WithAttributes(attribute.String("channel", d.Name)))
	i.deps.Logger.ErrorContext(ctx, "event skipped", "channel", d.Name, "event_id", id, "err", err)
}
