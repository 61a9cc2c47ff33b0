package telegram_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/channeltest"
	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	botID = "999000111"
	// dm, small and forum are a private chat, a group and a group with topics.
	dm    = 111
	small = -500
	forum = -100700
)

// tokenFile keeps a token where a channel reads it.
func tokenFile(t *testing.T, token string) (path string, s config.Secret) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
	s, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	return path, s
}

func newSender(t *testing.T, cfg config.Telegram) *telegram.Sender {
	t.Helper()
	s, err := telegram.NewSender(map[string]config.Telegram{"bot": cfg})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// setup returns a server and a sender to it.
func setup(t *testing.T) (*fake.Server, *telegram.Sender) {
	t.Helper()
	server := fake.New(t)
	_, token := tokenFile(t, server.Token())
	return server, newSender(t, config.Telegram{Token: token, APIURL: server.URL()})
}

func target(chat int64) event.Address {
	kind := "group"
	if chat > 0 {
		kind = "dm"
	}
	return event.Address{
		Platform: telegram.Platform, Account: botID, ChatID: strconv.FormatInt(chat, 10), Extra: map[string]string{"chat_type": kind},
	}
}

func text(chat int64, markdown string) channel.Send {
	return channel.Send{Target: target(chat), Part: channel.Part{Markdown: markdown}, IdemKey: "k", Number: 1, RunID: "run-1"}
}

func sendError(t *testing.T, err error) *channel.SendError {
	t.Helper()
	e, ok := errors.AsType[*channel.SendError](err)
	require.True(t, ok, "%v", err)
	require.NotContains(t, err.Error(), "AAtest-token")
	return e
}

// platform lets the suite drive the double.
type platform struct{ *fake.Server }

func (p platform) Answer(as ...channeltest.Answer) {
	for _, a := range as {
		answer := fake.Answer{Code: a.Status, Hang: a.Hang, Reset: a.Reset, RetryAfter: int(a.RetryAfter / time.Second)}
		if a.Location != "" {
			answer.Raw = "moved to " + a.Location
		}
		p.ScriptChat(forum, answer)
	}
}

func (p platform) Seen() []channeltest.Seen {
	var seen []channeltest.Seen
	for _, r := range p.Requests("sendMessage") {
		seen = append(seen, channeltest.Seen{ChatID: r.Args["chat_id"], ThreadID: r.Args["message_thread_id"], Text: r.Args["text"]})
	}
	return seen
}

func (p platform) Shown() []string { return p.Answers(forum) }

func TestSender_Conforms(t *testing.T) {
	t.Parallel()
	features := channeltest.Features{
		NoIdemKey: true, Sample: "héllo <i>world</i>",
		Classes: map[int]channel.Class{http.StatusUnauthorized: channel.Credential, http.StatusNotFound: channel.Credential},
	}
	channeltest.Run(t, features, func(t *testing.T) channeltest.Bundle {
		t.Helper()
		server, s := setup(t)
		server.Topic(forum, 42)
		to := target(forum)
		to.ThreadID = "42"
		return channeltest.Bundle{Sender: s, Platform: platform{server}, Target: to, Credentials: []string{server.Token(), "AAtest-token"}}
	})
}

func TestSender_RepliesInGroupsOnce(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	for _, c := range []struct {
		chat   int64
		number int
		want   string
	}{
		{small, 1, `{"allow_sending_without_reply":true,"message_id":57}`},
		{small, 2, ""},
		{dm, 1, ""},
	} {
		m := text(c.chat, "x")
		m.Target.MessageID, m.Number = "57", c.number
		_, err := s.Send(t.Context(), m)
		require.NoError(t, err)
		sent := server.Requests("sendMessage")
		args := sent[len(sent)-1].Args
		require.Equal(t, c.want, args["reply_parameters"])
		require.Equal(t, `{"is_disabled":true}`, args["link_preview_options"])
		require.Equal(t, "HTML", args["parse_mode"])
	}
}

func TestSender_SendsButtonsThatComeBack(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	m := text(dm, "Approve?")
	m.Part.Actions = []channel.Action{{ID: "approve:1", Label: "Yes"}, {ID: strings.Repeat("x", 64)}}
	id, err := s.Send(t.Context(), m)
	require.NoError(t, err)
	shown := server.Transcript(dm)
	require.Equal(t, id, strconv.FormatInt(shown[0].ID, 10))
	require.Equal(t, [][]fake.Button{{{Text: "Yes", Data: "approve:1"}}, {{Text: strings.Repeat("x", 64), Data: strings.Repeat("x", 64)}}}, shown[0].Buttons)

	edit := text(dm, "Approved")
	edit.Part.EditOf = id
	_, err = s.Send(t.Context(), edit)
	require.NoError(t, err)
	require.Empty(t, server.Transcript(dm)[0].Buttons, "an edit without buttons takes them away")

	for _, bad := range []string{"", strings.Repeat("x", 65)} {
		m.Part.Actions = []channel.Action{{ID: bad, Label: "No"}}
		_, err = s.Send(t.Context(), m)
		require.Equal(t, channel.Permanent, sendError(t, err).Class)
	}
	require.Len(t, server.Requests(), 2)
}

func TestSender_SendsFilesByURLOrID(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.AddFile("file-1", "x", []byte("x"))
	for _, c := range []struct {
		file channel.File
		kind string
	}{
		{channel.File{Ref: "https://example.test/a", MIME: "image/png"}, "photo"},
		{channel.File{Ref: "https://example.test/a", Name: "a.jpg"}, "photo"},
		{channel.File{Ref: "https://example.test/a.gif", MIME: "image/gif"}, "document"},
		{channel.File{Ref: "file-1", Name: "a.pdf"}, "document"},
		{channel.File{Ref: "file-1"}, "document"},
	} {
		m := text(dm, "**see**")
		m.Part.Files = []channel.File{c.file}
		_, err := s.Send(t.Context(), m)
		require.NoError(t, err)
		all := server.Transcript(dm)
		last := all[len(all)-1]
		require.Equal(t, c.kind, last.Kind)
		require.Equal(t, c.file.Ref, last.File)
		require.Equal(t, "<b>see</b>", last.HTML)
	}
	m := text(dm, "")
	m.Part.Files = []channel.File{{Ref: "file-1"}, {Ref: "file-1"}}
	_, err := s.Send(t.Context(), m)
	require.Equal(t, channel.Permanent, sendError(t, err).Class, "the plan has one file in each message")
	_, err = s.Send(t.Context(), channel.Send{Target: target(dm), Part: channel.Part{Files: []channel.File{{Ref: "nothing"}}}})
	require.Equal(t, channel.Permanent, sendError(t, err).Class)
}

func TestSender_SendsAnImageThatIsNoPhotoAsAFile(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.Script("sendPhoto", fake.Answer{Code: 400, Description: "Bad Request: PHOTO_INVALID_DIMENSIONS"})
	preview, err := s.Send(t.Context(), text(small, "preview"))
	require.NoError(t, err)
	m := text(small, "")
	m.Part.Files, m.Part.EditOf = []channel.File{{Ref: "https://example.test/a.png", MIME: "image/png"}}, preview
	_, err = s.Send(t.Context(), m)
	require.NoError(t, err)
	shown := server.Transcript(small)
	require.Len(t, shown, 1, "the preview is gone")
	require.Equal(t, "document", shown[0].Kind)
	require.Empty(t, shown[0].Text)
}

func TestSender_TellsWhereAGroupWent(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	server.Migrate(small, -1002470000001)
	_, err := s.Send(t.Context(), text(small, "x"))
	e := sendError(t, err)
	require.Equal(t, channel.Moved, e.Class)
	require.Equal(t, "-1002470000001", e.MovedTo)
}

func TestSender_SeesARotatedToken(t *testing.T) {
	t.Parallel()
	server := fake.New(t)
	path, token := tokenFile(t, botID+":AAtest-token-revoked")
	s := newSender(t, config.Telegram{Token: token, APIURL: server.URL()})
	_, err := s.Send(t.Context(), text(dm, "x"))
	require.Equal(t, channel.Credential, sendError(t, err).Class)
	require.NoError(t, os.WriteFile(path, []byte(server.Token()), 0o600))
	_, err = s.Send(t.Context(), text(dm, "x"))
	require.NoError(t, err)
	for _, wrong := range []string{"5:AAtest-token", "", "AAtest-token"} {
		require.NoError(t, os.WriteFile(path, []byte(wrong), 0o600))
		_, err = s.Send(t.Context(), text(dm, "x"))
		require.Equal(t, channel.Credential, sendError(t, err).Class, wrong)
	}
}

func TestSender_RefusesWhatItCannotSend(t *testing.T) {
	t.Parallel()
	server, s := setup(t)
	other := text(dm, "x")
	other.Target.Account = "5"
	for _, m := range []channel.Send{other, text(dm, " \n")} {
		_, err := s.Send(t.Context(), m)
		require.Equal(t, channel.Permanent, sendError(t, err).Class)
	}
	require.Empty(t, server.Requests())
	id, err := s.Send(t.Context(), text(dm, "[a]: http://example.test"))
	require.NoError(t, err)
	require.NotEmpty(t, id)
	require.Equal(t, []string{"[a]: http://example.test"}, server.Answers(dm), "Markdown that shows nothing is shown as it is")
}

func TestNewSender_FailsEarly(t *testing.T) {
	t.Parallel()
	_, token := tokenFile(t, "1:AAtest-token")
	_, broken := tokenFile(t, "AAtest-token")
	missing, err := config.NewSecret("file:" + filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	for _, channels := range []map[string]config.Telegram{
		{"a": {Token: token}, "b": {Token: token}}, {"a": {Token: broken}}, {"a": {Token: missing}}, {"a": {}}, {"a": {Token: token, APIURL: "x"}},
	} {
		_, err := telegram.NewSender(channels)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "AAtest-token")
	}
}

func TestSender_LimitsFollowTheKindOfChat(t *testing.T) {
	t.Parallel()
	_, s := setup(t)
	bot := ratelimit.Bucket{Key: "bot", Rate: 30, Burst: 30}
	require.Equal(t, []ratelimit.Bucket{bot, {Key: "chat:111", Rate: 1, Burst: 3}}, s.Limits(target(dm)))
	require.Equal(t, []ratelimit.Bucket{bot, {Key: "chat:-500", Rate: 20.0 / 60, Burst: 5}}, s.Limits(target(small)))
	untyped := target(small)
	untyped.Extra = nil
	require.Equal(t, s.Limits(target(small)), s.Limits(untyped))
}
