package event_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
)

func full() *event.Message {
	scope, guild := "", "g1"
	src := session.Source{
		Platform: "slack", Account: "A1", ChatID: "C1", ChatType: "channel", UserID: "u", UserIDAlt: "alt", ThreadID: "t",
		ProspectiveThread: "p", ScopeID: &scope, GuildID: &guild, UserName: "Ann", ChatName: "dev", Bot: true,
	}
	key := session.Key(src, session.DefaultOptions())
	return &event.Message{
		UID: event.UID("t1", src, "m1", event.KindMessage, "2"), Tenant: "t1", SessionKey: key, SKey: session.SKey("t1", key),
		Profile: "default", RunClass: "fast", Kind: event.KindMessage, Source: src,
		ReplyTo: event.Address{Platform: "slack", Account: "A1", ChatID: "C1", ThreadID: "t", MessageID: "m1", Extra: map[string]string{"k": "v"}},
		Text:    "héllo", Attachments: []event.Attachment{{Kind: "image", Ref: "f", MIME: "image/png", Size: 7, Name: "a.png", Caption: "see", ItemUID: "i1"}},
		Quote:   &event.Quote{MessageID: "q", Text: "before", AuthorID: "b", Own: true},
		Command: &event.Command{Name: "stop", Args: "all"}, PlatformMessageID: "m1", EditVersion: "2", Group: "g",
		ItemUIDs: []string{"i1", "i2"}, SentAt: time.Unix(1, 2).UTC(), ReceivedAt: time.Unix(3, 4).UTC(), BusyPolicy: "queue",
		Fingerprint: "abc", CallID: "c1", BlobRef: "b1",
		Refusal: event.RefusedStranger, History: []event.Turn{{Role: "user", Text: "hi"}},
	}
}

func TestCodecs_LoseNothing(t *testing.T) {
	t.Parallel()
	want := full()
	raw, err := event.Encode(want)
	require.NoError(t, err)
	got, err := event.Decode(raw)
	require.NoError(t, err)
	require.Equal(t, want, got)

	var fromJSON event.Message
	raw, err = json.Marshal(want)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &fromJSON))
	require.Equal(t, want, &fromJSON)
}

func TestDecode_RefusesWhatCannotBeAdmitted(t *testing.T) {
	t.Parallel()
	_, err := event.Decode([]byte{0xff, 0xff})
	require.ErrorContains(t, err, "decode message event")

	m := full()
	m.SKey = session.SKey("t2", m.SessionKey)
	m.Text = "a\x00"
	m.Profile = ""
	raw, err := event.Encode(m)
	require.NoError(t, err)
	_, err = event.Decode(raw)
	require.EqualError(t, err, "decode message event: profile: must not be empty\n"+
		"skey: does not belong to tenant and session_key\ntext: contains a NUL byte")
}

func TestCaptions_AreParagraphsInOrderEachOnce(t *testing.T) {
	t.Parallel()
	require.Empty(t, event.Captions(nil))
	require.Equal(t, "before\n\nafter", event.Captions([]event.Attachment{
		{Caption: "before"}, {Ref: "p2"}, {Caption: "after"}, {Caption: "before"},
	}))
}

func TestUID_SeparatesTenantsAccountsChatsKindsAndVersions(t *testing.T) {
	t.Parallel()
	src := session.Source{Platform: "slack", Account: "A", ChatID: "C"}
	base := event.UID("t", src, "1", event.KindMessage, "")
	require.Equal(t, base, event.UID("t", src, "1", event.KindMessage, ""))
	require.Len(t, base, 32)
	other := src
	other.Account = "B"
	for _, uid := range []string{
		event.UID("u", src, "1", event.KindMessage, ""),
		event.UID("t", other, "1", event.KindMessage, ""),
		event.UID("t", src, "2", event.KindMessage, ""),
		event.UID("t", src, "1", event.KindEdit, ""),
		event.UID("t", src, "1", event.KindMessage, "2"),
	} {
		require.NotEqual(t, base, uid)
	}
}

func TestLifecycleCodec_LosesNothing(t *testing.T) {
	t.Parallel()
	want := &event.Lifecycle{
		Type: event.ToolFinished, Tenant: "t", SKey: "s", MsgUID: "m", RunID: "r", Gen: 2, N: 3, OutSeq: 4,
		At: time.Unix(5, 6).UTC(), Outcome: "ok", Address: event.Address{Platform: "p", Account: "a", ChatID: "c", ThreadID: "t"},
		Profile: "d", Name: "read_file", CallID: "c1", Duration: 7 * time.Microsecond, Size: 8, InputTokens: 9, OutputTokens: 10, Content: "x",
	}
	raw, err := event.EncodeLifecycle(want)
	require.NoError(t, err)
	got, err := event.DecodeLifecycle(raw)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestTrace_SurvivesHeadersAndRows(t *testing.T) {
	t.Parallel()
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), sc)

	header := map[string][]string{}
	event.InjectTrace(ctx, header)
	require.Equal(t, sc.TraceID(), trace.SpanContextFromContext(event.ExtractTrace(t.Context(), header)).TraceID())
	require.Contains(t, header, "traceparent", "keys keep the case that W3C gives them")

	row := event.Traceparent(ctx)
	require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-01", row)
	require.Equal(t, sc.SpanID(), trace.SpanContextFromContext(event.WithTraceparent(t.Context(), row)).SpanID())
	require.Empty(t, event.Traceparent(t.Context()))
	require.Equal(t, t.Context(), event.WithTraceparent(t.Context(), ""))
}
