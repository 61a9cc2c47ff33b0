package accept_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a publisher in memory with a duplicate window, and an emitter.
type recorder struct {
	mu   sync.Mutex
	msgs []bus.Msg
	// objects by name; broken refuses more of them.
	objects map[string][]byte
	broken  error
	seen    map[string]bool
	events  []event.Lifecycle
	// before is called outside the lock.
	before func(ctx context.Context, m bus.Msg) error
}

func (r *recorder) Publish(ctx context.Context, m bus.Msg) (bus.Ack, error) {
	if r.before != nil {
		if err := r.before(ctx, m); err != nil {
			return bus.Ack{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[m.ID] {
		return bus.Ack{Duplicate: true}, nil
	}
	r.seen[m.ID] = true
	r.msgs = append(r.msgs, m)
	return bus.Ack{Seq: uint64(len(r.msgs))}, nil
}

func (r *recorder) PublishAll(context.Context, []bus.Msg) []error { panic("not used") }

func (r *recorder) PutObject(_ context.Context, name string, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return r.broken
	}
	r.objects[name] = data
	return nil
}

func (r *recorder) Emit(e event.Lifecycle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func setup() (*accept.Acceptor, *recorder) {
	r := &recorder{seen: map[string]bool{}, objects: map[string][]byte{}}
	return accept.New(accept.Deps{
		Bus: r, Emitter: r, Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
	}), r
}

func message(chat, id, text string) *event.Message {
	src := session.Source{Platform: "webhook", Account: "ci", ChatID: session.EscapeID(chat), ChatType: "dm", UserID: "u"}
	return &event.Message{
		Tenant: "default", SessionKey: session.Key(src, session.DefaultOptions()), Profile: "default", Source: src,
		ReplyTo: event.Address{Platform: event.PlatformAPI}, Text: text, PlatformMessageID: id,
	}
}

func TestAccept_PublishesTheCompleteMessage(t *testing.T) {
	t.Parallel()
	a, r := setup()
	m := message("c1", "m1", "\ufeffhello\u200b")
	receipt, err := a.Accept(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, accept.Receipt{UID: m.UID, SKey: m.SKey}, receipt)

	require.Len(t, r.msgs, 1)
	require.Equal(t, receipt.UID, r.msgs[0].ID)
	require.Equal(t, bus.IngestSubject("default", receipt.SKey), r.msgs[0].Subject)
	got, err := event.Decode(r.msgs[0].Data)
	require.NoError(t, err)
	require.Equal(t, "hello", got.Text)
	require.Equal(t, event.KindMessage, got.Kind)
	require.Equal(t, event.UID("default", m.Source, "m1", event.KindMessage, ""), got.UID)
	require.WithinDuration(t, time.Now(), got.ReceivedAt, time.Minute)

	require.Len(t, r.events, 1)
	require.Equal(t, event.MessageReceived, r.events[0].Type)
	require.Equal(t, receipt.UID, r.events[0].MsgUID)
	require.Empty(t, r.events[0].Content)
}

func TestAccept_ReportsADuplicateAndTellsObserversOnce(t *testing.T) {
	t.Parallel()
	a, r := setup()
	first, err := a.Accept(t.Context(), message("c1", "m1", "hello"))
	require.NoError(t, err)
	second, err := a.Accept(t.Context(), message("c1", "m1", "hello"))
	require.NoError(t, err)
	require.True(t, second.Duplicate)
	require.Equal(t, first.MessageID(), second.MessageID())
	require.Len(t, r.msgs, 1)
	require.Len(t, r.events, 1)
}

func TestING10_CommandsAreFoundAndEmptyTextIsRefused(t *testing.T) {
	t.Parallel()
	a, r := setup()
	for i, text := range []string{"\ufeff/stop", "/stop\u200b", "\u200f/stop\u200f", "\u2066/stop\u2069", "/new\u00a0trip plan"} {
		m := message("c1", fmt.Sprint(i), text)
		_, err := a.Accept(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, event.KindCommand, m.Kind, "%q", text)
		want := &event.Command{Name: "stop"}
		if i == 4 {
			want = &event.Command{Name: "new", Args: "trip plan"}
		}
		require.Equal(t, want, m.Command, "%q", text)
		require.Equal(t, event.UID("default", m.Source, fmt.Sprint(i), event.KindMessage, ""), m.UID, "the reading of a text does not change its identity")
	}
	stored := len(r.msgs)
	_, err := a.Accept(t.Context(), message("c1", "empty", "\u200b\u200b"))
	require.EqualError(t, err, "text: has no content")
	require.Len(t, r.msgs, stored)

	for _, text := range []string{"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001F469\u200D\U0001F4BB ok"} {
		m := message("c1", text, text)
		_, err := a.Accept(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, text, m.Text)
	}
}

func TestAccept_RefusesWhatCannotBeAdmittedAndStoresNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, field string
		large       bool
		change      func(m *event.Message)
	}{
		{"no content", "text", false, func(m *event.Message) { m.Text = " \u200b\n" }},
		{"invalid UTF-8", "text", false, func(m *event.Message) { m.Text = "a\xff" }},
		{"NUL in the text", "text", false, func(m *event.Message) { m.Text = "a\x00b" }},
		{"too long", "text", true, func(m *event.Message) { m.Text = strings.Repeat("a", event.MaxTextBytes+1) }},
		{"too many attachments", "attachments", false, func(m *event.Message) { m.Attachments = make([]event.Attachment, 33) }},
		{"attachment with NUL", "attachments[0].name", false, func(m *event.Message) { m.Attachments = []event.Attachment{{Name: "a\x00"}} }},
		{"tenant", "tenant", false, func(m *event.Message) { m.Tenant = "a.b" }},
		{"source with NUL", "source", false, func(m *event.Message) { m.Source.UserID = "a\x00" }},
		{"id with NUL", "platform_message_id", false, func(m *event.Message) { m.PlatformMessageID = "a\x00" }},
		{"address not UTF-8", "reply_to.chat_id", false, func(m *event.Message) { m.ReplyTo.ChatID = "\xff" }},
		{"no profile", "message", false, func(m *event.Message) { m.Profile = "" }},
		{"busy policy", "busy_policy", false, func(m *event.Message) { m.BusyPolicy = "hurry" }},
		{"too large in sum", "message", true, func(m *event.Message) {
			for range 3 {
				m.Attachments = append(m.Attachments, event.Attachment{Ref: strings.Repeat("a", 8<<20)})
			}
		}},
		{"command too large for the bus", "message", true, func(m *event.Message) { m.Text = "/new " + strings.Repeat("a", 300<<10) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, r := setup()
			m := message("c1", "m1", "hello")
			c.change(m)
			_, err := a.Accept(t.Context(), m)
			var invalid *accept.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, c.field, invalid.Field)
			require.Equal(t, c.large, invalid.TooLarge)
			require.Empty(t, r.msgs)
			require.Empty(t, r.objects)
			require.Empty(t, r.events)
		})
	}
}

func TestAccept_RefusedMessagesNeedNoContent(t *testing.T) {
	t.Parallel()
	a, r := setup()
	m := message("c", "stranger:u:2026-01-01", "")
	m.Refusal = event.RefusedStranger
	receipt, err := a.Accept(t.Context(), m)
	require.NoError(t, err)
	stored, err := event.Decode(r.msgs[0].Data)
	require.NoError(t, err)
	require.Equal(t, receipt.UID, stored.UID)
	require.Equal(t, event.RefusedStranger, stored.Refusal)
}

func TestAccept_SerialisesOneChatAndNotOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, r := setup()
		hold := make(chan struct{})
		r.before = func(_ context.Context, m bus.Msg) error {
			if strings.Contains(string(m.Data), "slow") {
				<-hold
			}
			return nil
		}
		var wg sync.WaitGroup
		for _, text := range []string{"slow", "second", "third"} {
			wg.Go(func() {
				_, err := a.Accept(t.Context(), message("c1", text, text))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		_, err := a.Accept(t.Context(), message("c2", "x", "other chat"))
		require.NoError(t, err)
		require.Len(t, r.msgs, 1, "the other chat did not wait, the same chat did")
		close(hold)
		wg.Wait()
		require.Len(t, r.msgs, 4)
		for i, text := range []string{"other chat", "slow", "second", "third"} {
			m, err := event.Decode(r.msgs[i].Data)
			require.NoError(t, err)
			require.Equal(t, text, m.Text)
		}
	})
}

func TestAccept_ReportsABrokerThatDoesNotAnswerInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, r := setup()
		r.before = func(ctx context.Context, _ bus.Msg) error { <-ctx.Done(); return ctx.Err() }
		begin := time.Now()
		_, err := a.Accept(t.Context(), message("c1", "m1", "hello"))
		require.ErrorIs(t, err, accept.ErrUnavailable)
		require.Equal(t, accept.DefaultDeadline, time.Since(begin))
		require.Empty(t, r.events)

		r.before = func(context.Context, bus.Msg) error { return bus.ErrUnavailable }
		_, err = a.Accept(t.Context(), message("c1", "m1", "hello"))
		require.ErrorIs(t, err, accept.ErrUnavailable)
	})
}

func TestAccept_DoesNotCallAGoneClientAnOutage(t *testing.T) {
	t.Parallel()
	a, r := setup()
	ctx, cancel := context.WithCancel(t.Context())
	r.before = func(ctx context.Context, _ bus.Msg) error { cancel(); return ctx.Err() }
	_, err := a.Accept(ctx, message("c1", "m1", "hello"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, accept.ErrUnavailable)
}

func TestAccept_CarriesTheTraceOfItsProducerSpan(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	r := &recorder{seen: map[string]bool{}, objects: map[string][]byte{}}
	a := accept.New(accept.Deps{
		Bus: r, Emitter: r, Logger: slog.New(slog.DiscardHandler),
		Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer(""),
	})
	_, err := a.Accept(t.Context(), message("c1", "m1", "hello"))
	require.NoError(t, err)
	require.Len(t, spans.Ended(), 1)
	span := spans.Ended()[0]
	require.Equal(t, "publish ing.{pp}.{tenant}.{skey}", span.Name())
	require.Contains(t, r.msgs[0].Header.Get("traceparent"), span.SpanContext().TraceID().String())
	require.Contains(t, r.msgs[0].Header.Get("traceparent"), span.SpanContext().SpanID().String())
}

func TestMessageID_RoundTrips(t *testing.T) {
	t.Parallel()
	skey, uid := session.SKey("t", "k"), event.UID("t", session.Source{}, "1", event.KindMessage, "")
	gotKey, gotUID, ok := accept.ParseMessageID(accept.MessageID(skey, uid))
	require.True(t, ok)
	require.Equal(t, skey, gotKey)
	require.Equal(t, uid, gotUID)
	for _, id := range []string{
		"", "msg_", "msg_a_b", "run_" + skey + "_" + uid, "msg_" + skey + uid, "msg_" + skey + "_" + uid + "0",
		"msg_" + strings.Repeat("*", 26) + "_" + uid, "msg_" + skey + "_" + strings.Repeat("g", 32),
	} {
		_, _, ok := accept.ParseMessageID(id)
		require.False(t, ok, id)
	}
}

func TestCheckID_NamesTheField(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/client_ids.json")
	require.NoError(t, err)
	var ids []string
	require.NoError(t, json.Unmarshal(raw, &ids))
	for _, id := range ids {
		require.NoError(t, accept.CheckID("id", id), "%q", id)
	}
	for id, want := range map[string]string{
		"":                       "id: must not be empty",
		"a\x00":                  "id: contains a NUL byte",
		"a\xff":                  "id: not valid UTF-8",
		"a\ufffd":                "id: not valid UTF-8",
		strings.Repeat("a", 513): "id: 513 bytes, at most 512 are allowed",
		strings.Repeat(":", 400): "id: over 1024 bytes once % and : are escaped",
	} {
		require.EqualError(t, accept.CheckID("id", id), want)
	}
	require.NoError(t, accept.CheckOptionalID("user", ""))
}
