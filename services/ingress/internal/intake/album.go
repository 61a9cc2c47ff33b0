package intake

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// albumItems is how many any platform sends. An album is gathered until it has that many, or has waited long enough. What
// comes later is an album of its own; admission knows the items that it has seen.
const albumItems = 10

var errStopping = errors.New("intake: stopping")

// albums joins the messages that platforms send one by one.
type albums struct {
	loops  *daemon.Loops
	wait   time.Duration
	finish func(ctx context.Context, a *album) error

	mu   sync.Mutex
	open map[albumKey]*album
}

type albumKey struct {
	door     *Door
	chat, id string
}

// album is one that is being gathered.
type album struct {
	key albumKey
	// chat is the canonical id.
	chat  string
	items []channel.Incoming
	full  chan struct{}
	// done is closed when err is set.
	done chan struct{}
	err  error
}

// join returns when the album that the item went into is stored.
func (l *albums) join(ctx context.Context, d *Door, in channel.Incoming, chat string) error {
	a := l.add(ctx, albumKey{door: d, chat: in.Source.ChatID, id: in.Album}, in, chat)
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *albums) add(ctx context.Context, key albumKey, in channel.Incoming, chat string) *album {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.open[key]
	if a == nil {
		a = &album{key: key, chat: chat, full: make(chan struct{}), done: make(chan struct{})}
		l.open[key] = a
		span := trace.SpanContextFromContext(ctx) // of the request that brought the first item
		l.loops.Go(ctx, func(ctx context.Context) { l.gather(trace.ContextWithSpanContext(ctx, span), a) })
	}
	if slices.ContainsFunc(a.items, func(other channel.Incoming) bool { return other.MessageID == in.MessageID }) {
		return a // a repetition
	}
	if a.items = append(a.items, in); len(a.items) == albumItems {
		close(a.full)
		delete(l.open, key)
	}
	return a
}

func (l *albums) gather(ctx context.Context, a *album) {
	defer close(a.done)
	wait := time.NewTimer(l.wait)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-a.full:
	case <-ctx.Done():
	}
	l.shut(a)
	if ctx.Err() != nil {
		a.err = errStopping
		return
	}
	a.err = l.finish(context.WithoutCancel(ctx), a) // accepting has a bound of its own
}

// shut lets nothing more into an album.
func (l *albums) shut(a *album) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[a.key] == a {
		delete(l.open, a.key)
	}
}

// acceptAlbum accepts the items as one message if any of them may start a turn: in a group only the one with the caption
// mentions the bot.
func (i *Intake) acceptAlbum(ctx context.Context, a *album) error {
	slices.SortFunc(a.items, func(x, y channel.Incoming) int { return compareIDs(x.MessageID, y.MessageID) })
	if !slices.ContainsFunc(a.items, func(in channel.Incoming) bool { return in.Ignore == "" }) {
		for _, in := range a.items {
			i.ignore(ctx, a.key.door, in, in.Ignore)
		}
		return nil
	}
	return i.accept(ctx, a.message())
}

// message joins the items, which are in order. Quote and command are those of the first item that has one.
func (a *album) message() *event.Message {
	joined := a.items[0]
	joined.Attachments, joined.Text = nil, ""
	for _, in := range a.items {
		if joined.Quote == nil {
			joined.Quote = in.Quote
		}
		if joined.Command == nil && in.Command != nil {
			joined.Kind, joined.Command = event.KindCommand, in.Command
		}
	}
	m := a.key.door.message(joined, a.chat)
	for _, in := range a.items {
		item := a.key.door.message(in, a.chat)
		m.Attachments = append(m.Attachments, item.Attachments...)
		m.ItemUIDs = append(m.ItemUIDs, item.UID)
	}
	if m.Command == nil {
		m.Text = event.Captions(m.Attachments)
	}
	slices.Sort(m.ItemUIDs)
	m.UID = event.UID(m.Tenant, m.Source, strings.Join(m.ItemUIDs, ","), event.KindMessage, "")
	return m
}
