package live_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	double "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
	"github.com/hermes-runtime/hermes/services/egress/internal/egresstest"
)

const (
	private = 4242
	group   = -1001234567890
)

// bot is an egress whose platform is Telegram.
type bot struct {
	*egresstest.Env
	server *double.Server
	sender *telegram.Sender
}

func startBot(t *testing.T) bot {
	t.Helper()
	server := double.New(t)
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(server.Token()), 0o600))
	token, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	sender, err := telegram.NewSender(map[string]config.Telegram{"bot": {Token: token, APIURL: server.URL()}})
	require.NoError(t, err)
	t.Cleanup(sender.Close)
	b := bot{Env: egresstest.New(t), server: server, sender: sender}
	b.Use(telegram.Platform, sender)
	b.Start("e1", both)
	return b
}

func (b bot) address(chat int64) event.Address {
	return event.Address{
		Platform: telegram.Platform, Account: strconv.FormatInt(b.server.BotID(), 10), ChatID: strconv.FormatInt(chat, 10),
	}
}

func (b bot) begin(chat int64) *egresstest.Run { return b.BeginAt(b.address(chat)).Start() }

// requests counts the calls that name a chat.
func (b bot) requests(chat int64, methods ...string) int {
	n := 0
	for _, r := range b.server.Requests(methods...) {
		if r.Chat == chat {
			n++
		}
	}
	return n
}

func (b bot) awaitAnswers(t *testing.T, chat int64, want ...string) {
	t.Helper()
	await.True(t, soon, func() bool { return len(b.server.Answers(chat)) == len(want) && b.server.Answers(chat)[0] == want[0] })
	require.Equal(t, want, b.server.Answers(chat))
}

func TestTelegram_ADraftShowsTheAnswerInAPrivateChat(t *testing.T) {
	t.Parallel()
	b := startBot(t)
	r := b.begin(private)
	await.True(t, soon, func() bool { return len(b.server.Typing(private)) > 0 })
	r.Say("hello")
	await.True(t, soon, func() bool { d, ok := b.server.Draft(private); return ok && d.Text == "hello" })
	awaitSettled(t, b.Env, r, r.Finish("hello, world"))
	require.Equal(t, []string{"hello, world"}, b.server.Answers(private))
	require.Equal(t, 1, b.requests(private, "sendMessage"))
}

func TestEGR04_OnTelegramTheGroupIsLeftAloneForTheTimeThatItAsksFor(t *testing.T) {
	t.Parallel()
	b := startBot(t)
	b.server.Script("editMessageText", double.Answer{RetryAfter: 33})
	r := b.begin(group)
	r.Say("some ")
	await.True(t, soon, func() bool { return len(b.server.Answers(group)) == 1 })
	for range 100 {
		r.Say("word ")
	}
	await.True(t, soon, func() bool { return b.requests(group, "editMessageText") == 1 })
	outSeq := r.Finish("the complete final text")
	await.True(t, soon, b.Acknowledged, "put off")
	before := b.requests(group)

	other := b.begin(private)
	awaitSettled(t, b.Env, other, other.Finish("not slowed down"))
	require.Zero(t, b.Pass(20*time.Second))
	require.Equal(t, before, b.requests(group))
	await.True(t, soon, func() bool { b.Pass(20 * time.Second); return b.Settled(r.SKey) == outSeq })
	require.Equal(t, []string{"the complete final text"}, b.server.Answers(group))
}

func TestEGR05_OnTelegramAnEditThatChangesNothingIsDelivered(t *testing.T) {
	t.Parallel()
	b := startBot(t)
	r := b.begin(group)
	r.Say("Hello")
	b.awaitAnswers(t, group, "Hello")
	awaitSettled(t, b.Env, r, r.Finish("Hello"))
	require.Equal(t, []string{"Hello"}, b.server.Answers(group))
	require.Equal(t, 1, b.requests(group, "sendMessage"))
	require.Equal(t, 1, b.requests(group, "editMessageText"))
}

func TestEGR05_OnTelegramAPreviewThatTheUserDeletedIsFollowedByAMessage(t *testing.T) {
	t.Parallel()
	b := startBot(t)
	r := b.begin(group)
	r.Say("Hello")
	b.awaitAnswers(t, group, "Hello")
	id := strconv.FormatInt(b.server.Transcript(group)[0].ID, 10)
	require.NoError(t, b.sender.DeletePreview(t.Context(), b.address(group), id))
	awaitSettled(t, b.Env, r, r.Finish("Hello"))
	require.Equal(t, []string{"Hello"}, b.server.Answers(group))
}

func TestEGR09_OnTelegramTopicsAreNamedAsTheyHaveToBe(t *testing.T) {
	t.Parallel()
	b := startBot(t)
	b.server.Topic(group, 42)
	deliver := func(thread, replyTo, text string) {
		target := b.address(group)
		target.ThreadID, target.MessageID = thread, replyTo
		r := b.BeginAt(target)
		outSeq := r.Finish(text)
		// The group takes five messages at once.
		await.True(t, soon, func() bool { b.Pass(time.Second); return b.Settled(r.SKey) == outSeq })
	}
	deliver("1", "", "general")
	deliver("", "57", "reply")
	deliver("42", "", "topic")
	b.server.DeleteTopic(group, 42)
	deliver("42", "", "after")
	deliver("42", "", "later")
	var threads []string
	for _, r := range b.server.Requests("sendMessage") {
		threads = append(threads, r.Args["text"]+"@"+r.Args["message_thread_id"])
	}
	require.Equal(t, []string{"general@", "reply@", "topic@42", "after@42", "after@", "later@"}, threads)
	require.Equal(t, []string{"general", "reply", "after", "later"}, b.server.Answers(group))
}
