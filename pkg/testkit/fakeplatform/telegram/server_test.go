package telegram_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bot is a program that speaks the wire protocol.
type bot struct {
	*telegram.Server
	t      *testing.T
	client *http.Client
}

func setup(t *testing.T, opts telegram.Options) *bot {
	t.Helper()
	b := &bot{Server: telegram.NewWith(t, opts), t: t, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

type reply struct {
	Status      int
	OK          bool
	Result      json.RawMessage
	Code        int `json:"error_code"`
	Description string
	Parameters  struct {
		RetryAfter int   `json:"retry_after"`
		MigrateTo  int64 `json:"migrate_to_chat_id"`
	}
}

func (b *bot) post(path, contentType string, body io.Reader) (reply, error) {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.URL()+path, body)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := b.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{Status: resp.StatusCode}
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

func (b *bot) try(method string, args map[string]any) (reply, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return reply{}, err
	}
	return b.post("/bot"+b.Token()+"/"+method, "application/json", bytes.NewReader(raw))
}

func (b *bot) do(method string, args map[string]any) reply {
	b.t.Helper()
	r, err := b.try(method, args)
	require.NoError(b.t, err)
	return r
}

func (b *bot) ok(method string, args map[string]any) json.RawMessage {
	b.t.Helper()
	r := b.do(method, args)
	require.True(b.t, r.OK, r.Description)
	require.Equal(b.t, http.StatusOK, r.Status)
	return r.Result
}

func (b *bot) refused(code int, description, method string, args map[string]any) reply {
	b.t.Helper()
	r := b.do(method, args)
	require.False(b.t, r.OK)
	require.Equal(b.t, code, r.Status)
	require.Equal(b.t, code, r.Code)
	require.Equal(b.t, description, r.Description)
	return r
}

func (b *bot) send(chat int64, text string) int64 {
	b.t.Helper()
	var m struct {
		ID int64 `json:"message_id"`
	}
	require.NoError(b.t, json.Unmarshal(b.ok("sendMessage", map[string]any{"chat_id": chat, "text": text}), &m))
	return m.ID
}

// poll returns the ids of the updates that wait.
func (b *bot) poll(args map[string]any) []int64 {
	b.t.Helper()
	var batch []struct {
		ID int64 `json:"update_id"`
	}
	require.NoError(b.t, json.Unmarshal(b.ok("getUpdates", args), &batch))
	ids := []int64{}
	for _, u := range batch {
		ids = append(ids, u.ID)
	}
	return ids
}

func TestServer_KnowsItsBotOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	var me struct {
		ID       int64
		Username string
		Bot      bool `json:"is_bot"`
	}
	require.NoError(t, json.Unmarshal(b.ok("getMe", nil), &me))
	require.Equal(t, b.BotID(), me.ID)
	require.Equal(t, int64(999000111), me.ID)
	require.Equal(t, "agent_bot", me.Username)
	require.True(t, me.Bot)

	b.refused(http.StatusNotFound, "Not Found: method not found", "flyToTheMoon", nil)
	r, err := b.post("/bot1:wrong/getMe", "application/json", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, r.Code)
	r, err = b.post("/nothing", "application/json", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, r.Code)
}

func TestGetUpdates_ConfirmsAllBelowTheOffset(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	require.Equal(t, int64(7), b.Push(`{"update_id":7,"message":{"message_id":3,"chat":{"id":1},"from":{"id":1},"text":"a"}}`))
	b.Say(1, 1, "b")
	require.Equal(t, int64(5), b.Say(1, 1, "c"), "ids go on behind those that were given")
	require.Equal(t, []int64{7, 870_000_001, 870_000_002}, b.poll(nil))
	require.Equal(t, []int64{7, 870_000_001}, b.poll(map[string]any{"limit": 2}), "nothing is confirmed by reading")
	require.Equal(t, []int64{870_000_001, 870_000_002}, b.poll(map[string]any{"offset": 8}))
	require.Equal(t, []int64{870_000_002}, b.poll(map[string]any{"offset": -1}), "from the end")
	require.Len(t, b.poll(map[string]any{"offset": 880_000_000}), 1, "one in the future confirms nothing")
	require.Empty(t, b.poll(map[string]any{"offset": 870_000_003}))
	require.Zero(t, b.Pending())
}

func TestGetUpdates_WaitsForAnUpdate(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	got := make(chan reply)
	go func() {
		r, _ := b.try("getUpdates", map[string]any{"timeout": 50})
		got <- r
	}()
	require.Eventually(t, func() bool { return len(b.Requests("getUpdates")) == 1 }, 10*time.Second, time.Millisecond)
	id := b.Push(map[string]any{"message": map[string]any{"message_id": 1, "chat": map[string]any{"id": 1}}})
	require.JSONEq(t, `[{"update_id":870000001,"message":{"chat":{"id":1},"message_id":1}}]`, string((<-got).Result))
	require.Empty(t, b.poll(map[string]any{"offset": id + 1, "timeout": 1}), "or for its time")
}

func TestGetUpdates_AnotherPollerEndsTheFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	first := make(chan reply)
	go func() {
		r, _ := b.try("getUpdates", map[string]any{"timeout": 50})
		first <- r
	}()
	require.Eventually(t, func() bool { return len(b.Requests("getUpdates")) == 1 }, 10*time.Second, time.Millisecond)
	var r reply
	require.Eventually(t, func() bool { // the first request is logged a moment before it waits
		b.poll(map[string]any{})
		select {
		case r = <-first:
			return true
		default:
			return false
		}
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, http.StatusConflict, r.Code)
	require.Equal(t, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running", r.Description)
}

func TestGetUpdates_SendsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	require.Empty(t, b.poll(map[string]any{"allowed_updates": []string{"message"}}))
	require.Zero(t, b.Push(`{"poll":{}}`))
	b.Say(1, 1, "x")
	require.Len(t, b.poll(nil), 1, "the choice stays")
	b.poll(map[string]any{"allowed_updates": []string{}})
	require.NotZero(t, b.Push(`{"poll":{}}`))
}

// hook is a webhook that refuses the first tries.
type hook struct {
	mu      sync.Mutex
	refuse  int
	tries   int
	secrets []string
	ids     []int64
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var u struct {
		ID int64 `json:"update_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&u); err != nil || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if h.tries++; h.tries <= h.refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.secrets, h.ids = append(h.secrets, r.Header.Get("X-Telegram-Bot-Api-Secret-Token")), append(h.ids, u.ID)
}

func (h *hook) got() ([]int64, []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]int64(nil), h.ids...), append([]string(nil), h.secrets...)
}

func TestWebhook_SendsUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{WebhookRetry: time.Millisecond})
	h := &hook{refuse: 2}
	target := httptest.NewServer(h)
	defer target.Close()
	b.Say(1, 1, "before it was set")
	b.refused(400, "Bad Request: secret token contains unallowed characters", "setWebhook",
		map[string]any{"url": target.URL, "secret_token": "a b"})
	b.ok("setWebhook", map[string]any{"url": target.URL, "secret_token": "s3cret"})
	b.refused(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
		"getUpdates", nil)
	b.Say(1, 1, "after")
	require.Eventually(t, func() bool { ids, _ := h.got(); return len(ids) == 2 && b.Pending() == 0 }, 10*time.Second, time.Millisecond)
	ids, secrets := h.got()
	require.ElementsMatch(t, []int64{870_000_001, 870_000_002}, ids)
	require.Equal(t, []string{"s3cret", "s3cret"}, secrets)

	var info struct {
		URL       string
		Pending   int    `json:"pending_update_count"`
		LastError string `json:"last_error_message"`
	}
	require.NoError(t, json.Unmarshal(b.ok("getWebhookInfo", nil), &info))
	require.Equal(t, target.URL, info.URL)
	require.Zero(t, info.Pending)
	require.Equal(t, "wrong response from the webhook: 503 Service Unavailable", info.LastError)

	b.ok("deleteWebhook", nil)
	b.Say(1, 1, "polled")
	require.Equal(t, []int64{870_000_003}, b.poll(nil))
}

func TestSendMessage_CountsUTF16AfterParsing(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	send := func(text, mode string) reply {
		return b.do("sendMessage", map[string]any{"chat_id": 1, "text": text, "parse_mode": mode})
	}
	require.True(t, send(strings.Repeat("a", 4096), "").OK)
	require.True(t, send(strings.Repeat("😀", 2048), "").OK)
	require.Equal(t, "Bad Request: message is too long", send(strings.Repeat("😀", 2048)+"a", "").Description)
	require.True(t, send("<b>"+strings.Repeat("&amp;", 4096)+"</b>", "HTML").OK, "tags and references do not count")
	require.Equal(t, "Bad Request: message is too long", send(strings.Repeat("a", 4097), "HTML").Description)
	for _, empty := range []string{"", " \n", "<b> </b>"} {
		require.Equal(t, "Bad Request: message text is empty", send(empty, "HTML").Description, "%q", empty)
	}
	require.Equal(t, "Bad Request: unsupported parse_mode", send("x", "Klingon").Description)
}

func TestSendMessage_ParsesHTML(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	source := ` 😀 <b>bold <i>both</i></b> &lt;x&gt; a&b &#33; <a href="https://e.test/?a=1&amp;b=2">link</a>` +
		"\n<pre><code class=\"language-go\">x := 1</code></pre><code>y</code><blockquote expandable>q</blockquote>"
	b.ok("sendMessage", map[string]any{"chat_id": 1, "text": source, "parse_mode": "HTML"})
	m := b.Transcript(1)[0]
	require.Equal(t, "😀 bold both <x> a&b ! link\nx := 1yq", m.Text)
	require.Equal(t, source, m.HTML)
	require.Equal(t, []telegram.Entity{
		{Type: "bold", Offset: 3, Length: 9},
		{Type: "italic", Offset: 8, Length: 4},
		{Type: "text_link", Offset: 23, Length: 4, URL: "https://e.test/?a=1&b=2"},
		{Type: "pre", Offset: 28, Length: 6, Language: "go"},
		{Type: "code", Offset: 34, Length: 1},
		{Type: "expandable_blockquote", Offset: 35, Length: 1},
	}, m.Entities)

	for text, problem := range map[string]string{
		"a <h1>b</h1>": `Unsupported start tag "h1" at byte offset 2`,
		"1 < 2":        "Unclosed start tag at byte offset 2",
		"<b>a":         `Can't find end tag corresponding to start tag "b"`,
		"<b><i>a</b>":  `Unmatched end tag at byte offset 7, expected "</i>", found "</b>"`,
		"a</b>":        "Unexpected end tag at byte offset 1",
		"<span>a":      `Unsupported start tag "span" at byte offset 0`,
	} {
		b.refused(400, "Bad Request: can't parse entities: "+problem, "sendMessage",
			map[string]any{"chat_id": 1, "text": text, "parse_mode": "HTML"})
	}
	require.Len(t, b.Transcript(1), 1)
}

func TestSendMessage_ChecksThreadsRepliesAndButtons(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	const forum = -1001
	b.Topic(forum, 42)
	for _, thread := range []int{1, 43} {
		b.refused(400, "Bad Request: message thread not found", "sendMessage",
			map[string]any{"chat_id": forum, "text": "x", "message_thread_id": thread})
	}
	asked := b.Say(forum, 5, "question")
	b.ok("sendMessage", map[string]any{
		"chat_id": forum, "text": "x", "message_thread_id": 42, "reply_parameters": map[string]any{"message_id": asked},
		"reply_markup": map[string]any{"inline_keyboard": [][]map[string]any{{{"text": "Yes", "callback_data": "y"}}}},
	})
	m := b.Transcript(forum)[1]
	require.Equal(t, int64(42), m.Thread)
	require.Equal(t, asked, m.ReplyTo)
	require.Equal(t, [][]telegram.Button{{{Text: "Yes", Data: "y"}}}, m.Buttons)

	b.refused(400, "Bad Request: message to be replied not found", "sendMessage",
		map[string]any{"chat_id": forum, "text": "x", "reply_parameters": map[string]any{"message_id": 99}})
	b.ok("sendMessage", map[string]any{
		"chat_id": forum, "text": "x", "reply_parameters": map[string]any{"message_id": 99, "allow_sending_without_reply": true},
	})
	b.refused(400, "Bad Request: BUTTON_DATA_INVALID", "sendMessage", map[string]any{
		"chat_id": forum, "text": "x",
		"reply_markup": map[string]any{"inline_keyboard": [][]map[string]any{{{"text": "Yes", "callback_data": strings.Repeat("y", 65)}}}},
	})
	b.DeleteTopic(forum, 42)
	require.Equal(t, []string{"x"}, b.Answers(forum))
}

func TestEditAndDelete_ChangeWhatIsSeen(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	asked := b.Say(1, 1, "question")
	first, second := b.send(1, "one"), b.send(1, "two")
	b.ok("editMessageText", map[string]any{"chat_id": 1, "message_id": first, "text": "uno"})
	r := b.do("editMessageText", map[string]any{"chat_id": 1, "message_id": first, "text": "uno"})
	require.Equal(t, 400, r.Code)
	require.True(t, strings.HasPrefix(r.Description, "Bad Request: message is not modified"), r.Description)
	b.refused(400, "Bad Request: message to edit not found", "editMessageText", map[string]any{"chat_id": 1, "message_id": 77, "text": "x"})
	b.refused(400, "Bad Request: message can't be edited", "editMessageText", map[string]any{"chat_id": 1, "message_id": asked, "text": "x"})
	b.ok("deleteMessage", map[string]any{"chat_id": 1, "message_id": second})
	b.refused(400, "Bad Request: message to delete not found", "deleteMessage", map[string]any{"chat_id": 1, "message_id": second})
	require.Equal(t, []string{"uno"}, b.Answers(1))
	require.True(t, b.Transcript(1)[1].Edited)
	require.Len(t, b.Transcript(1), 2)
}

func TestDraft_IsShownUntilAMessageComes(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	b.ok("sendMessageDraft", map[string]any{"chat_id": 1, "draft_id": 5, "text": ""})
	b.ok("sendMessageDraft", map[string]any{"chat_id": 1, "draft_id": 5, "text": "Hel"})
	d, shown := b.Draft(1)
	require.True(t, shown)
	require.Equal(t, "Hel", d.Text)
	b.send(1, "Hello")
	_, shown = b.Draft(1)
	require.False(t, shown)
	require.Len(t, b.Drafts(1), 2)
	require.False(t, b.do("sendMessageDraft", map[string]any{"chat_id": -5, "draft_id": 5, "text": "x"}).OK, "private chats only")
	require.False(t, b.do("sendMessageDraft", map[string]any{"chat_id": 1, "text": "x"}).OK)

	b.ok("sendChatAction", map[string]any{"chat_id": 1, "action": "typing"})
	require.Equal(t, "typing", b.Typing(1)[0].Name)
	require.False(t, b.do("sendChatAction", map[string]any{"chat_id": 1, "action": "dancing"}).OK)
}

func TestMedia_IsUploadedNamedOrKnown(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	require.NoError(t, form.WriteField("chat_id", "1"))
	require.NoError(t, form.WriteField("caption", "see"))
	part, err := form.CreateFormFile("document", "a.txt")
	require.NoError(t, err)
	_, err = part.Write([]byte("content"))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	r, err := b.post("/bot"+b.Token()+"/sendDocument", form.FormDataContentType(), &body)
	require.NoError(t, err)
	require.True(t, r.OK, r.Description)
	m := b.Transcript(1)[0]
	require.Equal(t, "document", m.Kind)
	require.Equal(t, "see", m.Text)
	require.Equal(t, "a.txt", m.FileName)
	data, ok := b.FileData(m.File)
	require.True(t, ok)
	require.Equal(t, "content", string(data))

	b.ok("sendPhoto", map[string]any{"chat_id": 1, "photo": m.File})
	b.ok("sendPhoto", map[string]any{"chat_id": 1, "photo": "https://e.test/a.png", "caption": strings.Repeat("a", 1024)})
	b.refused(400, "Bad Request: message caption is too long", "sendPhoto",
		map[string]any{"chat_id": 1, "photo": "https://e.test/a.png", "caption": strings.Repeat("a", 1025)})
	require.False(t, b.do("sendPhoto", map[string]any{"chat_id": 1, "photo": "unknown"}).OK)

	b.AddFile("f1", "photos/f1.jpg", []byte("jpeg"))
	var f struct {
		Path string `json:"file_path"`
	}
	require.NoError(t, json.Unmarshal(b.ok("getFile", map[string]any{"file_id": "f1"}), &f))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL()+"/file/bot"+b.Token()+"/"+f.Path, nil)
	require.NoError(t, err)
	resp, err := b.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "jpeg", string(raw))
}

func TestScript_LosesRequestsAndAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	b.Script("sendMessage",
		telegram.Answer{Reset: true},
		telegram.Answer{Reset: true, Keep: true},
		telegram.Answer{RetryAfter: 7},
		telegram.Answer{Raw: "<html>502</html>"},
		telegram.Answer{},
	)
	text := func(s string) map[string]any { return map[string]any{"chat_id": 1, "text": s} }
	_, err := b.try("sendMessage", text("dropped before it was accepted"))
	require.Error(t, err)
	_, err = b.try("sendMessage", text("dropped after it was accepted"))
	require.Error(t, err)
	r := b.refused(429, "Too Many Requests: retry after 7", "sendMessage", text("limited"))
	require.Equal(t, 7, r.Parameters.RetryAfter)
	_, err = b.try("sendMessage", text("proxy"))
	require.ErrorContains(t, err, "invalid character '<'")
	b.send(1, "as usual")
	require.Equal(t, []string{"dropped after it was accepted", "as usual"}, b.Answers(1))
	require.Len(t, b.Requests("sendMessage"), 5)
	require.Equal(t, "dropped before it was accepted", b.Requests()[0].Args["text"])
	require.Equal(t, int64(1), b.Requests()[0].Chat)

	b.ScriptChat(2, telegram.Answer{Code: 500, Description: "Internal Server Error"})
	b.send(1, "another chat")
	b.refused(500, "Internal Server Error", "sendMessage", map[string]any{"chat_id": 2, "text": "x"})
}

func TestScript_HoldsARequestBack(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	open := make(chan struct{})
	b.Script("sendMessage", telegram.Answer{Until: open})
	done := make(chan error, 1)
	go func() {
		_, err := b.try("sendMessage", map[string]any{"chat_id": 1, "text": "first"})
		done <- err
	}()
	require.Eventually(t, func() bool { return len(b.Requests()) == 1 }, 10*time.Second, time.Millisecond)
	b.send(1, "second")
	close(open)
	require.NoError(t, <-done)
	require.Equal(t, []string{"second", "first"}, b.Answers(1))
}

func TestChats_CanBeShutMovedAndGone(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	text := func(chat int64) map[string]any { return map[string]any{"chat_id": chat, "text": "x"} }
	b.Block(1)
	b.refused(403, "Forbidden: bot was blocked by the user", "sendMessage", text(1))
	b.Block(-5)
	b.refused(403, "Forbidden: bot was kicked from the group chat", "sendMessage", text(-5))
	require.Len(t, b.poll(nil), 2, "the bot is told")
	b.Gone(2)
	b.refused(400, "Bad Request: chat not found", "sendMessage", text(2))
	b.Migrate(-6, -1006)
	r := b.refused(400, "Bad Request: group chat was upgraded to a supergroup chat", "sendMessage", text(-6))
	require.Equal(t, int64(-1006), r.Parameters.MigrateTo)
}

func TestChatRate_RefusesWhatComesTooSoon(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{ChatRate: telegram.Rate{N: 2, Per: time.Hour}})
	first := b.send(1, "a")
	b.send(1, "b")
	r := b.do("editMessageText", map[string]any{"chat_id": 1, "message_id": first, "text": "c"})
	require.Equal(t, 429, r.Code)
	require.InDelta(t, 3600, r.Parameters.RetryAfter, 60)
	b.send(2, "another chat")
	b.ok("deleteMessage", map[string]any{"chat_id": 1, "message_id": first})
}

func TestPress_IsAnsweredOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	id := b.Press(1, 1, b.send(1, "choose"), "yes")
	_, answered := b.Pressed(id)
	require.False(t, answered)
	b.ok("answerCallbackQuery", map[string]any{"callback_query_id": id, "text": "noted"})
	text, answered := b.Pressed(id)
	require.True(t, answered)
	require.Equal(t, "noted", text)
	require.False(t, b.do("answerCallbackQuery", map[string]any{"callback_query_id": id}).OK)
}

func TestSay_FindsCommandsAndMentions(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	b.Say(-5, 1, "/stop@agent_bot 😀 ask @agent_bot, a/b x@y.test")
	require.Equal(t, []telegram.Entity{
		{Type: "bot_command", Offset: 0, Length: 15}, {Type: "mention", Offset: 23, Length: 10},
	}, b.Transcript(-5)[0].Entities)

	b.Edit(-5, 1, 1, "changed")
	require.Equal(t, "changed", b.Transcript(-5)[0].Text)
	answer := b.send(-5, "answer")
	b.Reply(-5, 1, answer, "thanks")
	require.Equal(t, answer, b.Transcript(-5)[2].ReplyTo)
}

func TestForm_IsUnderstoodLikeJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, telegram.Options{})
	form := url.Values{
		"chat_id": {strconv.Itoa(1)}, "text": {"hi"}, "reply_markup": {`{"inline_keyboard":[[{"text":"Go","url":"https://e.test"}]]}`},
	}
	r, err := b.post("/bot"+b.Token()+"/sendmessage", "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	require.True(t, r.OK, r.Description)
	require.Equal(t, [][]telegram.Button{{{Text: "Go", URL: "https://e.test"}}}, b.Transcript(1)[0].Buttons)
}
