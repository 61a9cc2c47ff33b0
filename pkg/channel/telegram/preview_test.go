package telegram_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
)

func preview(chat int64, text, id string) channel.Preview {
	return channel.Preview{Target: target(chat), RunID: "run-1", Text: text, ID: id}
}

func TestPreview_IsADraftInPrivateChats(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.Topic(dm, 4)
	for _, text := range []string{"", "a **b", "a **b** c"} {
		p := preview(dm, text, "")
		p.Target.ThreadID = "4"
		id, err := s.Preview(t.Context(), p)
		require.NoError(t, err)
		require.Empty(t, id)
	}
	drafts := server.Drafts(dm)
	require.Len(t, drafts, 3)
	for i, want := range []string{"", "a **b", "a <b>b</b> c"} {
		require.Equal(t, want, drafts[i].HTML)
		require.Equal(t, drafts[0].ID, drafts[i].ID, "one draft grows")
		require.Equal(t, int64(4), drafts[i].Thread)
	}
	require.Equal(t, "true", server.Requests("sendMessageDraft")[0].Args["can_stop"])
	require.Empty(t, server.Answers(dm))
	_, err := s.Send(t.Context(), text(dm, "a **b** c"))
	require.NoError(t, err)
	_, left := server.Draft(dm)
	require.False(t, left, "the answer takes the draft away")
	require.Equal(t, []string{"a b c"}, server.Answers(dm))
}

func TestPreview_IsOneEditedMessageInGroups(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	question := server.Say(small, 5, "@agent_bot hi")
	id := ""
	for _, text := range []string{" ", "a", "a", "a b"} { // the third changes nothing
		p := preview(small, text, id)
		p.Target.MessageID = strconv.FormatInt(question, 10)
		var err error
		id, err = s.Preview(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, text == " ", id == "")
	}
	require.Equal(t, []string{"a b"}, server.Answers(small))
	require.Equal(t, question, server.Transcript(small)[1].ReplyTo)
	require.Len(t, server.Requests("sendMessage"), 1)
	require.Len(t, server.Requests("editMessageText"), 2)
	require.NoError(t, s.DeletePreview(t.Context(), target(small), id))
	require.NoError(t, s.DeletePreview(t.Context(), target(small), id), "one that is gone is no error")
	require.NoError(t, s.DeletePreview(t.Context(), target(dm), ""), "a draft goes by itself")
	require.Empty(t, server.Answers(small))
}

func TestPreview_ShowsTheBeginningAndFallsBackToPlainText(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	long := "```go\n" + strings.Repeat("x := 1\n", 2000)
	for _, chat := range []int64{dm, small} {
		_, err := s.Preview(t.Context(), preview(chat, long, ""))
		require.NoError(t, err)
	}
	require.True(t, strings.HasPrefix(server.Answers(small)[0], "x := 1\nx := 1"))
	require.True(t, strings.HasPrefix(server.Drafts(dm)[0].Text, "x := 1\nx := 1"))
	server.Script("sendMessageDraft", fake.Answer{Code: 400, Description: "Bad Request: can't parse entities: x"})
	_, err := s.Preview(t.Context(), preview(dm, "**a** & b", ""))
	require.NoError(t, err)
	require.Equal(t, "a & b", server.Drafts(dm)[1].Text)
}

func TestPreview_KeepsBelowTheLimitsOrStaysAway(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	require.Equal(t, time.Second, s.PreviewEvery(target(dm)))
	require.Equal(t, 3*time.Second, s.PreviewEvery(target(small)))
	require.True(t, s.Capability().Streams)

	_, token := tokenFile(t, server.Token())
	off := newSender(t, config.Telegram{Token: token, APIURL: server.URL(), Streaming: "off"})
	require.False(t, off.Capability().Streams)
	require.Zero(t, off.PreviewEvery(target(dm)))
	for _, chat := range []int64{dm, small} {
		id, err := off.Preview(t.Context(), preview(chat, "x", ""))
		require.NoError(t, err)
		require.Empty(t, id)
	}
	require.Empty(t, server.Requests())
}

func TestPreview_PassesErrorsOn(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.Script("editMessageText", fake.Answer{RetryAfter: 33})
	id, err := s.Preview(t.Context(), preview(small, "a", ""))
	require.NoError(t, err)
	_, err = s.Preview(t.Context(), preview(small, "a b", id))
	e := sendError(t, err)
	require.Equal(t, channel.NotSent, e.Class)
	require.Equal(t, 33*time.Second, e.RetryAfter)
	require.Equal(t, "chat:-500", e.Freezes)
}

func TestTyping_FadesAfterFiveSeconds(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.Topic(forum, 42)
	for _, thread := range []string{"", "1", "42"} {
		to := target(forum)
		to.ThreadID = thread
		require.NoError(t, s.Typing(t.Context(), to))
	}
	shown := server.Typing(forum)
	require.Len(t, shown, 3)
	for i, thread := range []int64{0, 0, 42} {
		require.Equal(t, "typing", shown[i].Name)
		require.Equal(t, thread, shown[i].Thread)
	}
	require.Equal(t, 5*time.Second, s.TypingEvery())
}
