package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
	"github.com/hermes-runtime/hermes/pkg/testkit/netproxy"
	"github.com/hermes-runtime/hermes/services/ingress/internal/poll"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func updateOf(message int, text string) string {
	return fmt.Sprintf(`{"update_id":%d,"message":{"message_id":%d,"chat":{"id":111,"type":"private"},"from":{"id":111},"text":%q}}`,
		message, message, text)
}

func TestWebhook_IsOnlyForTelegram(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	url := d.webhook(d.settings(), d.Backends())
	require.Eventually(t, func() bool { // the bot is not known yet
		return post(t, url, webhookToken, updateOf(1, "hello")) == http.StatusOK
	}, patience, 5*time.Millisecond)
	for name, c := range map[string]struct {
		secret, body string
		status       int
	}{
		"no secret":                    {"", updateOf(2, "x"), http.StatusUnauthorized},
		"wrong secret":                 {"a-webhook-secreT", updateOf(2, "x"), http.StatusUnauthorized},
		"longer secret":                {webhookToken + "x", updateOf(2, "x"), http.StatusUnauthorized},
		"wrong secret on a huge body":  {"x", strings.Repeat("x", 5<<20), http.StatusUnauthorized},
		"no JSON":                      {webhookToken, `{"update_id":`, http.StatusBadRequest},
		"nothing":                      {webhookToken, "", http.StatusBadRequest},
		"too large":                    {webhookToken, strings.Repeat(" ", 4<<20+1), http.StatusRequestEntityTooLarge},
		"an update that is broken":     {webhookToken, `{"update_id":3,"message":{"message_id":3}}`, http.StatusOK},
		"a message with nothing in it": {webhookToken, updateOf(4, "\u200b"), http.StatusOK},
		"an update of another kind":    {webhookToken, `{"update_id":5,"poll":{}}`, http.StatusOK},
		"the one that has been stored": {webhookToken, updateOf(1, "hello"), http.StatusOK},
	} {
		require.Equal(t, c.status, post(t, url, c.secret, c.body), name)
	}
	require.Equal(t, http.StatusNotFound, post(t, strings.TrimSuffix(url, "bot")+"nobody", webhookToken, "{}"))
	require.Equal(t, 1, d.Stored(t))
}

func TestWebhook_IsRegisteredOnceTelegramAnswers(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	d.server.Script("setWebhook", fake.Answer{Code: 500}, fake.Answer{RetryAfter: 1})
	cfg := d.settings()
	cfg.WebhookURL = "http://example.test/v1/telegram/bot"
	d.webhook(cfg, d.Backends())
	require.Eventually(t, func() bool { return len(d.server.Requests("setWebhook")) == 3 }, patience, 5*time.Millisecond)
	request := d.server.Requests("setWebhook")[2]
	require.Equal(t, "http://example.test/v1/telegram/bot", request.Args["url"])
	require.Equal(t, webhookToken, request.Args["secret_token"])
	require.JSONEq(t, `["message","edited_message","callback_query","my_chat_member","stopped_message_generation"]`,
		request.Args["allowed_updates"])
	require.GreaterOrEqual(t, request.At.Sub(d.server.Requests("setWebhook")[1].At), time.Second, "as Telegram asked")
}

func TestWebhook_RefusesWhileTheBotIsUnknownOrTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	open := make(chan struct{})
	d.server.Script("getMe", fake.Answer{Until: open})
	url := d.webhook(d.settings(), d.Backends())
	require.Equal(t, http.StatusServiceUnavailable, post(t, url, webhookToken, updateOf(1, "x")))
	close(open)
	require.Eventually(t, func() bool { return post(t, url, webhookToken, updateOf(1, "x")) == http.StatusOK }, patience, 5*time.Millisecond)
	require.NoError(t, d.Server.Shutdown())
	require.Equal(t, http.StatusServiceUnavailable, post(t, url, webhookToken, updateOf(2, "x")))
}

// behind connects to the broker through a proxy.
func (d *telegramDoor) behind(t *testing.T, proxy *netproxy.Proxy) *natsbus.Bus {
	t.Helper()
	streams := bus.DefaultConfig()
	streams.Memory, streams.IngestMaxBytes, streams.EventMaxBytes = true, 64<<20, 8<<20
	b, err := natsbus.Connect(t.Context(), natsbus.Config{URL: "nats://" + proxy.Addr(), Name: t.Name(), Streams: streams}, servicetest.Logger())
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() }) // the proxy may be cut by then
	return b
}

// expiring is the timing of polls that are to be taken over.
func expiring() poll.Timing {
	t := quick()
	t.Expire, t.Margin, t.Write = 4*time.Second, time.Second, time.Second
	return t
}

func TestPoll_WithoutTheBrokerNothingIsConfirmed(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	proxy := netproxy.New(t, d.Server.Addr())
	b, log := d.logged(d.behind(t, proxy))
	d.start(d.settings(), b, expiring())
	d.server.Say(anna, anna, "before")
	d.messages(1)
	proxy.Cut()
	d.server.Say(anna, anna, "while it is down")
	log.await(t, "polling ended")
	require.Equal(t, 1, d.server.Pending())
	require.Equal(t, 1, d.Stored(t))
	proxy.Restore()
	require.Equal(t, "while it is down", d.messages(2)[1].Text)
}

func TestPoll_AnotherReplicaGoesOnWhenTheOwnerDies(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"killed": false, "cut off from the broker only": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTelegram(t)
			broker, platform := netproxy.New(t, d.Server.Addr()), netproxy.New(t, strings.TrimPrefix(d.server.URL(), "http://"))
			dying, first := d.logged(d.behind(t, broker))
			tg := d.settings()
			tg.APIURL = "http://" + platform.Addr()
			d.start(tg, dying, expiring())
			first.await(t, "polling")
			other, second := d.logged(d.Bus)
			d.start(d.settings(), other, expiring())

			const chats, each = 5, 20
			for n := range chats * each {
				if n == chats*each/2 {
					broker.Cut()
					if !alone {
						platform.Cut()
					}
				}
				d.server.Say(int64(n%chats+1), int64(n%chats+1), fmt.Sprint(n/chats))
			}
			second.await(t, "polling")
			next := map[string]int{}
			for _, m := range d.messages(chats * each) {
				require.Equal(t, fmt.Sprint(next[m.Source.ChatID]), m.Text, "in the order of the chat")
				next[m.Source.ChatID]++
			}
			first.await(t, "polling ended")
			require.Zero(t, second.count("polling ended"))
			broker.Restore() // so that it can stop
		})
	}
}

func TestPoll_OneReplicaPollsAndGivesTheFeedBackWhenItStops(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	b, first := d.logged(d.Bus)
	a := d.start(d.settings(), b, quick())
	first.await(t, "polling")
	other, second := d.logged(d.Bus)
	d.start(d.settings(), other, quick()) // it would wait for an hour
	d.server.Say(anna, anna, "one")
	d.messages(1)
	require.Zero(t, second.count("polling"))
	servicetest.Stop(t, a)
	second.await(t, "polling")
	d.server.Say(anna, anna, "two")
	d.messages(2)

	kv, err := d.Bus.OpenKV(t.Context(), "cursors")
	require.NoError(t, err)
	raw, _, err := kv.Get(t.Context(), "telegram.999000111")
	require.NoError(t, err)
	var cursor struct{ Offset int64 }
	require.NoError(t, json.Unmarshal(raw, &cursor))
	require.Equal(t, int64(870_000_003), cursor.Offset)
}

func TestPoll_AStrangerWithTheSameTokenCostsNothingButTime(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	b, log := d.logged(d.Bus)
	d.start(d.settings(), b, quick())
	log.await(t, "polling")
	for log.count("polling ended") == 0 {
		d.call("getUpdates", map[string]any{"timeout": 0})
	}
	d.server.Say(anna, anna, "hello")
	d.messages(1)
}

func TestPoll_TakesTheFeedFromAWebhookThatWasLeftBehind(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	d.call("setWebhook", map[string]any{"url": "http://127.0.0.1:1/gone"})
	d.server.Say(anna, anna, "hello")
	d.poll()
	d.messages(1)
}

func TestPoll_WaitsAsLongAsTelegramAsksAndPassesOverWhatIsBroken(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	d.server.Script("getUpdates", fake.Answer{RetryAfter: 1}, fake.Answer{Raw: "<html>"}, fake.Answer{Reset: true})
	d.server.Push(`{"message":"no object"}`)
	d.server.Push(`{"message":{"message_id":1}}`)
	d.server.Say(anna, anna, "\u200b")
	d.server.Say(anna, anna, "hello")
	d.poll()
	require.Equal(t, "hello", d.messages(1)[0].Text)
	polls := d.server.Requests("getUpdates")
	require.GreaterOrEqual(t, polls[1].At.Sub(polls[0].At), time.Second)
}
