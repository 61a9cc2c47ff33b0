package telegram_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/render"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
)

func TestEGR01_LongTextsArriveWholeAndInOrder(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	chat := int64(dm)
	for i, c := range []struct {
		text  string
		parts int
	}{
		{strings.Repeat("a", 4095) + "😀" + "b", 2},
		{strings.Repeat("😀", 2048), 1},
		{strings.Repeat("😀", 2049), 2},
		{strings.Repeat("a", 4094) + "👩‍💻", 2},
		{strings.Repeat("é", 4096), 1},
		{strings.Repeat("word ", 900), 2},
	} {
		chat++
		parts := s.Split([]channel.Part{{Markdown: c.text}})
		require.Len(t, parts, c.parts, "text %d", i+1)
		for _, p := range parts {
			_, err := s.Send(t.Context(), channel.Send{Target: target(chat), Part: p})
			require.NoError(t, err, "text %d", i+1)
		}
		got := server.Answers(chat)
		require.Len(t, got, c.parts)
		require.Equal(t, strings.ReplaceAll(c.text, " ", ""), strings.ReplaceAll(strings.Join(got, ""), " ", ""))
		for _, part := range got {
			require.LessOrEqual(t, render.UTF16(part), 4096)
			require.NotContains(t, part, "\uFFFD")
		}
	}
}

const (
	markup = "*   **Total**: snake_case_name costs 5.00 (v1.2)!\nsee [a_b](https://example.test/a_(b)) and 1 < 2 & 3"
	plain  = "• Total: snake_case_name costs 5.00 (v1.2)!\n  see a_b (https://example.test/a_(b)) and 1 < 2 & 3"
)

func TestEGR03_RefusedMarkupGoesOutOnceAsPlainText(t *testing.T) {
	t.Parallel()
	noParse := fake.Answer{Code: 400, Description: "Bad Request: can't parse entities: Unsupported start tag"}

	t.Run("a message", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		server.Script("sendMessage", noParse)
		_, err := s.Send(t.Context(), text(dm, markup))
		require.NoError(t, err)
		require.Equal(t, []string{plain}, server.Answers(dm))
		sent := server.Requests("sendMessage")
		require.Len(t, sent, 2)
		require.NotContains(t, sent[1].Args, "parse_mode")
	})
	t.Run("accepted markup reads the same", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		_, err := s.Send(t.Context(), text(dm, markup))
		require.NoError(t, err)
		require.Equal(t, []string{strings.Replace(plain, " (https://example.test/a_(b))", "", 1)}, server.Answers(dm))
		require.Equal(t, "https://example.test/a_(b)", server.Transcript(dm)[0].Entities[1].URL)
	})
	t.Run("an edit", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		id, err := s.Preview(t.Context(), preview(small, "*   **Total", ""))
		require.NoError(t, err)
		server.Script("editMessageText", noParse)
		m := text(small, markup)
		m.Part.EditOf = id
		got, err := s.Send(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, id, got)
		require.Equal(t, []string{plain}, server.Answers(small))
	})
	t.Run("a caption", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		server.Script("sendPhoto", noParse)
		m := text(dm, markup)
		m.Part.Files = []channel.File{{Ref: "https://example.test/i.png", MIME: "image/png"}}
		_, err := s.Send(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, []string{plain}, server.Answers(dm))
	})
	t.Run("plain text is refused as well", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		server.Script("sendMessage", noParse, noParse)
		_, err := s.Send(t.Context(), text(dm, markup))
		require.Equal(t, channel.Permanent, sendError(t, err).Class)
		require.Len(t, server.Requests(), 2)
	})
	t.Run("other failures do not fall back", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			answer fake.Answer
			class  channel.Class
		}{
			{fake.Answer{Code: 400, Description: "Bad Request: chat not found"}, channel.Permanent},
			{fake.Answer{Code: 403, Description: "Forbidden: can't parse entities"}, channel.Permanent},
			{fake.Answer{Code: 502, Raw: "can't parse entities"}, channel.Unknown},
			{fake.Answer{Reset: true}, channel.Unknown},
			{fake.Answer{RetryAfter: 1}, channel.NotSent},
		} {
			server, s := setup(t)
			server.Script("sendMessage", c.answer)
			_, err := s.Send(t.Context(), text(dm, markup))
			require.Equal(t, c.class, sendError(t, err).Class)
			require.Len(t, server.Requests(), 1)
		}
	})
}

func TestEGR04_A429ClosesItsChatOnly(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.ScriptChat(small, fake.Answer{RetryAfter: 33})
	_, err := s.Send(t.Context(), text(small, "x"))
	e := sendError(t, err)
	require.Equal(t, channel.NotSent, e.Class)
	require.Equal(t, 33*time.Second, e.RetryAfter)
	limits := s.Limits(target(small))
	require.Equal(t, limits[len(limits)-1].Key, e.Freezes)
	for _, bucket := range s.Limits(target(dm)) {
		require.NotEqual(t, e.Freezes, bucket.Key)
	}
}

func TestEGR05_AnEditToTheSameTextIsDelivered(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	id, err := s.Send(t.Context(), text(small, "Hel"))
	require.NoError(t, err)
	edit := text(small, "Hello")
	edit.Part.EditOf = id
	for range 2 { // the second one is "message is not modified"
		got, err := s.Send(t.Context(), edit)
		require.NoError(t, err)
		require.Equal(t, id, got)
	}
	require.Equal(t, []string{"Hello"}, server.Answers(small))
	require.Len(t, server.Requests("sendMessage"), 1)

	for _, gone := range []string{"message to edit not found", "message can't be edited", "MESSAGE_ID_INVALID"} {
		require.NoError(t, s.DeletePreview(t.Context(), target(small), id)) // the user deleted it
		server.Script("editMessageText", fake.Answer{Code: 400, Description: "Bad Request: " + gone})
		edit.Part.EditOf = id
		next, err := s.Send(t.Context(), edit)
		require.NoError(t, err, gone)
		require.NotEqual(t, id, next)
		require.Equal(t, []string{"Hello"}, server.Answers(small), gone)
		id = next
	}
}

func TestEGR06_ClassesSayWhatMayHaveHappened(t *testing.T) {
	t.Parallel()
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		server.Script("sendMessage", fake.Answer{Hang: true, Keep: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := s.Send(ctx, text(dm, "x"))
			done <- err
		}()
		require.Eventually(t, func() bool { return len(server.Answers(dm)) == 1 }, time.Minute, time.Millisecond)
		cancel() // the time is up
		require.Equal(t, channel.Unknown, sendError(t, <-done).Class)
		require.Equal(t, []string{"x"}, server.Answers(dm))
	})
	for name, a := range map[string]fake.Answer{
		"reset": {Reset: true, Keep: true}, "502": {Code: 502, Raw: "<html>", Keep: true}, "504": {Code: 504, Keep: true},
		"half an answer": {Code: 200, Raw: `{"ok":true,"resu`, Keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, s := setup(t)
			server.Script("sendMessage", a)
			_, err := s.Send(t.Context(), text(dm, "**x**"))
			require.Equal(t, channel.Unknown, sendError(t, err).Class)
			require.Equal(t, []string{"x"}, server.Answers(dm))
			require.Len(t, server.Requests(), 1, "no second copy, not as plain text either")
		})
	}
	t.Run("an edit of unknown outcome sends nothing new", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		id, err := s.Send(t.Context(), text(small, "Hel"))
		require.NoError(t, err)
		server.Script("editMessageText", fake.Answer{Reset: true})
		m := text(small, "Hello")
		m.Part.EditOf = id
		_, err = s.Send(t.Context(), m)
		require.Equal(t, channel.Unknown, sendError(t, err).Class)
		require.Len(t, server.Requests(), 2)
	})
	t.Run("connection refused", func(t *testing.T) {
		t.Parallel()
		server, s := setup(t)
		require.NoError(t, server.Close())
		_, err := s.Send(t.Context(), text(dm, "x"))
		require.Equal(t, channel.NotSent, sendError(t, err).Class)
	})
}

func TestEGR08_AChatThatIsClosedIsPermanent(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	for _, a := range []fake.Answer{
		{Code: http.StatusForbidden, Description: "Forbidden: bot was blocked by the user"},
		{Code: http.StatusForbidden, Description: "Forbidden: not enough rights to send text messages to the chat"},
		{Code: http.StatusBadRequest, Description: "Bad Request: chat not found"},
	} {
		server.ScriptChat(1, a)
		_, err := s.Send(t.Context(), text(1, "x"))
		e := sendError(t, err)
		require.Equal(t, channel.Permanent, e.Class)
		require.Equal(t, a.Code, e.Status)
		_, err = s.Send(t.Context(), text(2, "x"))
		require.NoError(t, err)
	}
	require.Len(t, server.Requests(), 6)
}

func TestEGR09_TheGeneralTopicHasNoID(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.Topic(forum, 42)
	for _, thread := range []string{"1", "", "42"} {
		m := text(forum, "x")
		m.Target.ThreadID = thread
		if thread == "" {
			m.Target.MessageID = "57"
		}
		_, err := s.Send(t.Context(), m)
		require.NoError(t, err)
	}
	sent := server.Requests("sendMessage")
	require.NotContains(t, sent[0].Args, "message_thread_id")
	require.NotContains(t, sent[1].Args, "message_thread_id")
	require.Contains(t, sent[1].Args["reply_parameters"], `"message_id":57`)
	require.Equal(t, "42", sent[2].Args["message_thread_id"])

	server.DeleteTopic(forum, 42)
	m := text(forum, "y")
	m.Target.ThreadID = "42"
	_, err := s.Send(t.Context(), m)
	e := sendError(t, err)
	require.Equal(t, channel.NotSent, e.Class)
	require.True(t, e.ThreadGone, "the caller sends it without the thread, and remembers")
	require.Len(t, server.Requests("sendMessage"), 4)
}

func TestEGR10_TextOfTheModelIsShownAsText(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	for _, markdown := range []string{"<b>x</b> & y", "</b><pre>", "<a href=\"tg://user?id=5\">you</a>", "a < b > c &amp;lt; &unknown; \"q\"", "</code></pre>"} {
		_, err := s.Send(t.Context(), text(dm, markdown))
		require.NoError(t, err, markdown)
	}
	require.Equal(t, []string{"<b>x</b> & y", "</b><pre>", "<a href=\"tg://user?id=5\">you</a>", "a < b > c &lt; &unknown; \"q\"", "</code></pre>"}, server.Answers(dm))
	for _, m := range server.Transcript(dm) {
		require.Empty(t, m.Entities)
	}
	require.Len(t, server.Requests("sendMessage"), 5, "none had to be sent as plain text")
}
