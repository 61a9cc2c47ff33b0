package intake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/services/ingress/internal/intake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// acceptor keeps what it was given.
type acceptor struct {
	mu       sync.Mutex
	accepted []*event.Message
	err      error
}

func (a *acceptor) Accept(_ context.Context, m *event.Message) (accept.Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.accepted = append(a.accepted, m)
	}
	return accept.Receipt{}, a.err
}

func (a *acceptor) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *acceptor) texts() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	texts := []string{}
	for _, m := range a.accepted {
		texts = append(texts, m.Text)
	}
	return texts
}

func (a *acceptor) last() *event.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.accepted[len(a.accepted)-1]
}

// emitter keeps the reasons for which messages were ignored.
type emitter struct {
	mu      sync.Mutex
	reasons []string
}

func (e *emitter) Emit(ev event.Lifecycle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reasons = append(e.reasons, ev.Outcome)
}

// aliases counts the questions, and answers none while it is down.
type aliases struct {
	store.Aliases
	mu    sync.Mutex
	down  bool
	asked int
}

func (a *aliases) set(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *aliases) ResolveAliases(ctx context.Context, as []store.Address) ([]string, error) {
	a.mu.Lock()
	a.asked++
	down := a.down
	a.mu.Unlock()
	if down { // as a database that nobody reaches
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return a.Aliases.ResolveAliases(ctx, as)
}

type bundle struct {
	*intake.Intake
	t        *testing.T
	acceptor *acceptor
	emitter  *emitter
	aliases  *aliases
	door     *intake.Door
}

// inBubble runs a test with an intake in time that passes by itself.
func inBubble(t *testing.T, test func(b *bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bundle{t: t, acceptor: &acceptor{}, emitter: &emitter{}, aliases: &aliases{Aliases: memstore.New()}}
		var err error
		b.Intake, err = intake.New(intake.Deps{
			Acceptor: b.acceptor, Aliases: b.aliases, Emitter: b.emitter, Logger: slog.New(slog.DiscardHandler),
			Meter: metricnoop.Meter{}, Now: time.Now, AlbumWait: intake.DefaultAlbumWait,
		})
		require.NoError(t, err)
		ch, err := intake.NewChannel("bot", config.Channel{}, config.Default())
		require.NoError(t, err)
		b.door = &intake.Door{Channel: ch, Allow: intake.AllowList{Users: []string{"*"}}}
		require.NoError(t, b.Start(t.Context()))
		defer func() { require.NoError(t, b.Stop(context.WithoutCancel(t.Context()))) }()
		test(b)
	})
}

func said(chat, id, text string) channel.Incoming {
	return channel.Incoming{
		Kind: event.KindMessage, MessageID: id, Text: text, MentionsBot: true,
		Source:  session.Source{Platform: "telegram", Account: "1", ChatID: chat, ChatType: "group", UserID: "u"},
		ReplyTo: event.Address{Platform: "telegram", Account: "1", ChatID: chat, MessageID: id},
	}
}

func item(id, caption string) channel.Incoming {
	in := said("c", id, caption)
	in.Album = "g"
	in.Attachments = []event.Attachment{{Kind: "image", Ref: "ref" + id, Caption: caption}}
	return in
}

// begin takes in the background.
func (b *bundle) begin(ctx context.Context, in channel.Incoming) <-chan error {
	done := make(chan error, 1)
	go func() { done <- b.Take(ctx, b.door, in) }()
	synctest.Wait()
	return done
}

func TestAlbum_WaitsForItsItemsAndHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		began := time.Now()
		first := b.begin(t.Context(), item("9", "nine"))
		require.NoError(t, b.Take(t.Context(), b.door, said("c", "11", "hello")))
		require.Zero(t, time.Since(began))
		second := b.begin(t.Context(), item("10", ""))
		again := b.begin(t.Context(), item("9", "nine"))
		for _, done := range []<-chan error{first, second, again} {
			require.NoError(t, <-done)
		}
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, []string{"hello", "nine"}, b.acceptor.texts())
		m := b.acceptor.last()
		require.Equal(t, "ref9", m.Attachments[0].Ref, "9 comes before 10")
		require.Equal(t, "ref10", m.Attachments[1].Ref)
		require.Len(t, m.ItemUIDs, 2)
	})
}

func TestAlbum_IsFullWithTenItems(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		began := time.Now()
		var items []<-chan error
		for n := range 10 {
			items = append(items, b.begin(t.Context(), item(fmt.Sprint(n), "")))
		}
		for _, done := range items {
			require.NoError(t, <-done)
		}
		require.Zero(t, time.Since(began))
		require.Len(t, b.acceptor.last().Attachments, 10)
	})
}

func TestAlbum_OfAGroupIsAddressedByOneCaption(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		silent := item("1", "")
		silent.Ignore = "not addressed"
		first, second := b.begin(t.Context(), silent), b.begin(t.Context(), item("2", "look"))
		require.NoError(t, errors.Join(<-first, <-second))
		require.Len(t, b.acceptor.last().Attachments, 2)

		silent.Album = "other"
		require.NoError(t, b.Take(t.Context(), b.door, silent))
		require.Len(t, b.acceptor.texts(), 1)
		require.Equal(t, []string{"not addressed"}, b.emitter.reasons)
	})
}

func TestAlbum_FailsForAllItsItemsAndMayComeAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		b.acceptor.fail(accept.ErrUnavailable)
		first, second := b.begin(t.Context(), item("1", "a")), b.begin(t.Context(), item("2", "b"))
		require.ErrorIs(t, <-first, accept.ErrUnavailable)
		require.ErrorIs(t, <-second, accept.ErrUnavailable)
		b.acceptor.fail(nil)
		first, second = b.begin(t.Context(), item("2", "b")), b.begin(t.Context(), item("1", "a"))
		require.NoError(t, errors.Join(<-first, <-second))
		require.Equal(t, []string{"a\n\nb"}, b.acceptor.texts())
	})
}

func TestAlbum_OutlivesTheRequestThatBeganIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		gone, cancel := context.WithCancel(t.Context())
		first, second := b.begin(gone, item("1", "a")), b.begin(t.Context(), item("2", "b"))
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-second)
		require.Equal(t, []string{"a\n\nb"}, b.acceptor.texts())
	})
}

func TestAlbum_IsNotAcknowledgedWhenTheServiceStops(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		open := b.begin(t.Context(), item("1", "a"))
		require.NoError(t, b.Stop(t.Context()))
		require.ErrorContains(t, <-open, "stopping")
		require.Empty(t, b.acceptor.texts())
	})
}

func TestAlbum_MayCarryACommand(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		in := item("2", "all of it")
		in.Kind, in.Command = event.KindCommand, &event.Command{Name: "describe", Args: "all of it"}
		first, second := b.begin(t.Context(), item("1", "")), b.begin(t.Context(), in)
		require.NoError(t, errors.Join(<-first, <-second))
		m := b.acceptor.last()
		require.Equal(t, event.KindCommand, m.Kind)
		require.Equal(t, "/describe all of it", m.Text)
	})
}

func TestAliases_AnswerLateAndAreRemembered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		take := func(chat, id string) string {
			require.NoError(t, b.Take(t.Context(), b.door, said(chat, id, "x")))
			return b.acceptor.last().SessionKey
		}
		before := take("old", "1")
		require.NoError(t, b.Take(t.Context(), b.door, channel.Incoming{
			Source: said("old", "2", "").Source, Moved: &channel.Move{From: "old", To: "new"},
		}))
		b.aliases.set(true)
		require.Equal(t, before, take("new", "3"), "remembered")

		began, asked := time.Now(), b.aliases.asked
		require.Equal(t, "agent:main:telegram:group:other:u", take("other", "4"))
		require.Equal(t, 500*time.Millisecond, time.Since(began))
		take("other", "5")
		require.Equal(t, asked+1, b.aliases.asked, "the store rests")
		b.aliases.set(false)
		<-time.After(2 * time.Second)
		take("other", "6")
		require.Equal(t, asked+2, b.aliases.asked)
	})
}

func TestIdentity_DoesNotDependOnWhatIsLearntInBetween(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		require.NoError(t, b.Take(t.Context(), b.door, said("new", "1", "x")))
		before := b.acceptor.last()
		_, err := b.aliases.LearnAlias(t.Context(), store.Address{Tenant: "default", Platform: "telegram", Account: "1", ID: "new"}, "old")
		require.NoError(t, err)
		require.NoError(t, b.Take(t.Context(), b.door, said("new", "1", "x")))
		after := b.acceptor.last()
		require.Equal(t, before.UID, after.UID)
		require.Equal(t, "new", after.Source.ChatID)
		require.Equal(t, "agent:main:telegram:group:old:u", after.SessionKey)
	})
}

func TestStranger_IsToldAgainTheNextDay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bundle) {
		t := b.t
		b.door.Allow = intake.AllowList{}
		uids := map[string]bool{}
		for range 3 {
			require.NoError(t, b.Take(t.Context(), b.door, said("c", "1", "hello")))
			uids[b.acceptor.last().UID] = true
			<-time.After(12 * time.Hour)
		}
		require.Len(t, uids, 2)
	})
}
