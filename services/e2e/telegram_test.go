package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
)

const (
	telegramGroup = -1000000000500
	otherUser     = 222
)

// telegramStack is a stack with a bot that telegramUser may talk to, also in telegramGroup.
func telegramStack(t *testing.T, script fakemodel.Script) (*stack, *telegram.Server, *fakemodel.Server) {
	t.Helper()
	bot := telegram.NewWith(t, telegram.Options{Token: telegramToken})
	model := fakemodel.Start(t, script)
	return start(t, options{model: model.URL, telegram: bot.URL()}), bot, model
}

func awaitAnswers(t *testing.T, bot *telegram.Server, chat int64, want ...string) {
	t.Helper()
	await.NoError(t, 60*time.Second, func() error {
		if got := bot.Answers(chat); !slices.Equal(want, got) {
			return fmt.Errorf("chat %d shows %q, want %q", chat, got, want)
		}
		return nil
	})
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	await.NoError(t, 60*time.Second, func() error {
		if !f() {
			return fmt.Errorf("not yet: %s", what)
		}
		return nil
	})
}

func TestTelegram_PrivateChat(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	_, bot, _ := telegramStack(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		switch question := req.Last("user"); {
		case strings.Contains(question, "slowly"):
			return fakemodel.Reply{Text: "**Slowly** written answer", Hold: gate}
		case strings.Contains(question, "long"):
			return fakemodel.Reply{Text: strings.Repeat("word ", 1500)}
		default:
			return fakemodel.Reply{Text: "Hello *Ada*, 1 < 2 & `x`"}
		}
	})
	bot.Say(telegramUser, telegramUser, "hi")
	awaitAnswers(t, bot, telegramUser, "Hello Ada, 1 < 2 & x")
	require.Equal(t, "Hello <i>Ada</i>, 1 &lt; 2 &amp; <code>x</code>", bot.Transcript(telegramUser)[1].HTML)

	bot.Say(telegramUser, telegramUser, "slowly please")
	eventually(t, "a draft", func() bool {
		d, ok := bot.Draft(telegramUser)
		return ok && strings.Contains(d.Text, "written answer")
	})
	eventually(t, "typing", func() bool { return len(bot.Typing(telegramUser)) > 0 })
	require.Len(t, bot.Answers(telegramUser), 1, "a draft is no message")
	close(gate)
	awaitAnswers(t, bot, telegramUser, "Hello Ada, 1 < 2 & x", "Slowly written answer")

	bot.Say(telegramUser, telegramUser, "something long")
	eventually(t, "four messages", func() bool { return len(bot.Answers(telegramUser)) == 4 })
	var words int
	for _, part := range bot.Answers(telegramUser)[2:] {
		require.LessOrEqual(t, len(part), 4096)
		words += len(strings.Fields(part))
	}
	require.Equal(t, 1500, words)
}

func TestTelegram_GroupsAndTopics(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	s, bot, model := telegramStack(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		question := req.Last("user")
		if strings.Contains(question, "slowly") {
			return fakemodel.Reply{Text: "first half and", Hold: gate}
		}
		return fakemodel.Reply{Text: "answer to " + question}
	})
	bot.Topic(telegramGroup, 42)
	bot.Say(telegramGroup, telegramUser, "lunch anyone?")
	bot.Say(telegramGroup, telegramUser, "/stop@other_bot")
	asked := bot.Say(telegramGroup, telegramUser, "@agent_bot what now?")
	eventually(t, "an answer in the group", func() bool { return len(bot.Answers(telegramGroup)) == 1 })
	answer := bot.Transcript(telegramGroup)[3]
	require.Contains(t, answer.Text, "what now?")
	require.Equal(t, asked, answer.ReplyTo)
	require.Len(t, model.Requests(), 1, "what does not address the bot is ignored")

	bot.Send(telegramGroup, telegramUser, map[string]any{
		"text": "@agent_bot in the topic", "message_thread_id": 42, "is_topic_message": true,
	})
	eventually(t, "an answer in the topic", func() bool { return len(bot.Answers(telegramGroup)) == 2 })
	require.EqualValues(t, 42, bot.Transcript(telegramGroup)[5].Thread)
	require.Equal(t, 2, s.count(`select count(*) from sessions`), "a topic is a conversation of its own")

	bot.Reply(telegramGroup, telegramUser, answer.ID, "slowly please")
	eventually(t, "a preview", func() bool { return slices.Contains(bot.Answers(telegramGroup), "first half and") })
	preview := bot.Transcript(telegramGroup)[7]
	close(gate)
	eventually(t, "the preview becomes the answer", func() bool {
		return s.count(`select count(*) from outbox where state = 'sent'`) == 3
	})
	require.Len(t, bot.Answers(telegramGroup), 3, "the answer is one message")
	require.Equal(t, preview.ID, bot.Transcript(telegramGroup)[7].ID)
	require.Zero(t, s.count(`select count(*) from previews`))
}

func TestTelegram_AlbumsEditsAndStrangers(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	s, bot, model := telegramStack(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		question := req.Last("user")
		if question == "wait" {
			return fakemodel.Reply{Text: "waited", Hold: gate}
		}
		return fakemodel.Reply{Text: "answer to " + question}
	})
	bot.Say(telegramUser, telegramUser, "wait")
	eventually(t, "a run", func() bool { return len(model.Requests()) == 1 })
	table := bot.Say(telegramUser, telegramUser, "book a table for 2")
	eventually(t, "the message waits", func() bool { return s.count(`select count(*) from inbox`) == 2 })
	bot.Edit(telegramUser, telegramUser, table, "book a table for 4")
	eventually(t, "the waiting text is the edited one", func() bool {
		return s.count(`select count(*) from inbox where body->>'text' = 'book a table for 4'`) == 1
	})
	close(gate)
	awaitAnswers(t, bot, telegramUser, "waited", "answer to book a table for 4")
	bot.Edit(telegramUser, telegramUser, table, "book a table for 6")

	for i, caption := range []string{"before", "", "after - compare them"} {
		fields := map[string]any{
			"media_group_id": "g1",
			"photo": []map[string]any{
				{"file_id": fmt.Sprintf("p%d", i), "width": 90, "height": 90},
				{"file_id": fmt.Sprintf("p%dL", i), "width": 1280, "height": 960},
			},
		}
		if caption != "" {
			fields["caption"] = caption
		}
		bot.Send(telegramUser, telegramUser, fields)
	}
	eventually(t, "one answer to the album", func() bool { return len(bot.Answers(telegramUser)) == 3 })
	album := model.Requests()[2].Last("user")
	for _, part := range []string{"before", "after - compare them", "p0L", "p1L", "p2L"} {
		require.Contains(t, album, part)
	}
	require.Equal(t, 3, s.count(`select count(*) from runs`), "the edit of an answered message starts nothing")

	bot.Say(otherUser, otherUser, "let me in")
	eventually(t, "the stranger is told", func() bool { return len(bot.Answers(otherUser)) == 1 })
	require.Contains(t, bot.Answers(otherUser)[0], "222")
	bot.Say(otherUser, otherUser, "/status")
	bot.Say(telegramUser, telegramUser, "last")
	eventually(t, "the owner is answered", func() bool { return len(bot.Answers(telegramUser)) == 4 })
	require.Len(t, bot.Answers(otherUser), 1, "once a day")
	require.Len(t, model.Requests(), 4, "nothing of a stranger reaches the model")
}

func TestING08_AGroupBecomesASupergroup(t *testing.T) {
	t.Parallel()
	const before, after = -4518000001, -1002470000001
	_, bot, model := telegramStack(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		return fakemodel.Reply{Text: fmt.Sprintf("%d messages", len(withoutSystem(req)))}
	})
	bot.Say(before, telegramUser, "@agent_bot remember: code word is plum")
	awaitAnswers(t, bot, before, "1 messages")
	bot.Migrate(before, after)
	bot.Send(before, telegramUser, map[string]any{"migrate_to_chat_id": after})
	bot.Send(after, telegramUser, map[string]any{"migrate_from_chat_id": before})
	bot.Say(after, telegramUser, "@agent_bot what is the code word?")
	awaitAnswers(t, bot, after, "3 messages")
	require.Len(t, model.Requests(), 2, "service messages start nothing")
}

func TestTelegram_AnotherProcessTakesThePollOver(t *testing.T) {
	t.Parallel()
	s, bot, model := telegramStack(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		return fakemodel.Reply{Text: "answer to " + req.Last("user")}
	})
	bot.Say(telegramUser, telegramUser, "one")
	awaitAnswers(t, bot, telegramUser, "answer to one")
	s.run("ingress", 1, "HERMES_INGRESS_ADDR="+freeAddr(t)).awaitReady() // the second replica listens elsewhere
	s.kill(s.named("ingress-0"))
	bot.Say(telegramUser, telegramUser, "two")
	awaitAnswers(t, bot, telegramUser, "answer to one", "answer to two")
	require.Len(t, model.Requests(), 2)
}

func TestTelegram_Webhook(t *testing.T) {
	t.Parallel()
	bot := telegram.NewWith(t, telegram.Options{Token: telegramToken})
	model := fakemodel.Start(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		return fakemodel.Reply{Text: "answer to " + req.Last("user")}
	})
	s := start(t, options{model: model.URL, telegram: bot.URL(), telegramWebhook: true})
	bot.Say(telegramUser, telegramUser, "one")
	awaitAnswers(t, bot, telegramUser, "answer to one")
	code, body, err := call(http.MethodPost, "http://"+s.hooks+"/v1/telegram/bot", `{"update_id": 1}`,
		http.Header{"Content-Type": {"application/json"}, "X-Telegram-Bot-Api-Secret-Token": {"wrong"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, code, body)
}

// TestTelegram_ThirdPartyServer talks to telegram-test-api, a Bot API server from the npm registry.
func TestTelegram_ThirdPartyServer(t *testing.T) {
	t.Parallel()
	n := installNode(t, "telegram-test-api@4.2.1")
	addr := freeAddr(t)
	n.serve(addr, n.command(n.script("telegram_server.cjs"), portOf(t, addr)))
	model := fakemodel.Start(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		return fakemodel.Reply{Text: "answer to " + req.Last("user")}
	})
	start(t, options{model: model.URL, telegram: "http://" + addr})
	person := map[string]any{"id": telegramUser, "first_name": "Ada", "is_bot": false}
	header := http.Header{"Content-Type": {"application/json"}}
	post := func(path string, fields map[string]any) string {
		raw, err := json.Marshal(fields)
		require.NoError(t, err)
		code, body, err := call(http.MethodPost, "http://"+addr+path, string(raw), header)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, body)
		return body
	}
	post("/sendMessage", map[string]any{
		"botToken": telegramToken, "from": person, "date": time.Now().Unix(), "text": "hello from outside",
		"chat": map[string]any{"id": telegramUser, "type": "private", "first_name": "Ada"},
	})
	var seen bytes.Buffer
	eventually(t, "an answer on the third-party server", func() bool {
		seen.WriteString(post("/getUpdates", map[string]any{"token": telegramToken, "chatId": telegramUser}))
		return strings.Contains(seen.String(), "answer to hello from outside")
	})
}
