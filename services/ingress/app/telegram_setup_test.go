package app_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
	"github.com/hermes-runtime/hermes/services/ingress/app"
	"github.com/hermes-runtime/hermes/services/ingress/internal/poll"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

const (
	anna         = int64(111)
	webhookToken = "a-webhook-secret"
	patience     = 30 * time.Second
)

// telegramDoor is the service with one bot of the double.
type telegramDoor struct {
	*servicetest.Env
	t      *testing.T
	server *telegram.Server
}

func newTelegram(t *testing.T) *telegramDoor {
	t.Helper()
	return &telegramDoor{Env: servicetest.New(t), t: t, server: telegram.New(t)}
}

// quick is the timing of polls where nothing is to expire.
func quick() poll.Timing {
	return poll.Timing{
		Watch: 20 * time.Millisecond, Renew: 200 * time.Millisecond, Expire: time.Hour, Margin: time.Minute,
		Write: 5 * time.Second, LongPoll: 5 * time.Second, Gap: time.Millisecond,
		Retry: 20 * time.Millisecond, MaxRetry: 200 * time.Millisecond,
	}
}

func (d *telegramDoor) settings() config.Telegram {
	return config.Telegram{
		Token: secretFile(d.t, d.server.Token()), APIURL: d.server.URL(), AllowUsers: []string{"*"},
	}
}

func (d *telegramDoor) config(tg config.Telegram) config.Config {
	cfg := config.Default()
	cfg.Ingress.Addr = "127.0.0.1:0"
	cfg.Channels = map[string]config.Channel{"bot": {Platform: "telegram", Telegram: tg}}
	return cfg
}

// albumWait leaves a slow machine time to bring all items.
const albumWait = 5 * time.Second

func (d *telegramDoor) start(tg config.Telegram, b backends.Backends, timing poll.Timing) *app.App {
	d.t.Helper()
	a, err := app.NewWithTiming(d.config(tg), b, timing, albumWait)
	require.NoError(d.t, err)
	servicetest.Start(d.t, a)
	return a
}

// poll starts the service in poll mode.
func (d *telegramDoor) poll() *app.App {
	d.t.Helper()
	return d.start(d.settings(), d.Backends(), quick())
}

// webhook starts the service in webhook mode. It returns where updates are posted; register has the double do so.
func (d *telegramDoor) webhook(tg config.Telegram, b backends.Backends) string {
	d.t.Helper()
	tg.Mode, tg.WebhookSecret = config.TelegramWebhook, secretFile(d.t, webhookToken)
	return "http://" + d.start(tg, b, quick()).Addr() + "/v1/telegram/bot"
}

func (d *telegramDoor) register(url string) {
	d.t.Helper()
	d.call("setWebhook", map[string]any{"url": url, "secret_token": webhookToken})
}

// call is a call of the Bot API by somebody else.
func (d *telegramDoor) call(method string, args map[string]any) {
	d.t.Helper()
	raw, err := json.Marshal(args)
	require.NoError(d.t, err)
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		d.server.URL()+"/bot"+d.server.Token()+"/"+method, strings.NewReader(string(raw)))
	require.NoError(d.t, err)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(d.t, err)
	require.NoError(d.t, resp.Body.Close())
}

// way is what a test may change before the service starts.
type way struct {
	*telegramDoor
	telegram config.Telegram
	backends backends.Backends
}

// eachWay runs a test over polls and over webhooks. prepare, if not nil, comes before the service starts.
func eachWay(t *testing.T, prepare func(w *way), test func(d *telegramDoor)) {
	t.Helper()
	setup := func(t *testing.T) *way {
		t.Helper()
		d := newTelegram(t)
		w := &way{telegramDoor: d, telegram: d.settings(), backends: d.Backends()}
		if prepare != nil {
			prepare(w)
		}
		return w
	}
	t.Run("poll", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		w.start(w.telegram, w.backends, quick())
		test(w.telegramDoor)
	})
	t.Run("webhook", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		w.register(w.webhook(w.telegram, w.backends))
		test(w.telegramDoor)
	})
}

// post sends an update as Telegram does, and returns the status.
func post(t *testing.T, url, secret, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	if secret != "" {
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// messages returns what was stored, once the double has no update left: all that it was told is acknowledged.
func (d *telegramDoor) messages(want int) []*event.Message {
	d.t.Helper()
	d.settled()
	require.Equal(d.t, want, d.Stored(d.t))
	var all []*event.Message
	for seq := 1; seq <= want; seq++ {
		m, err := event.Decode(d.Entry(d.t, seq).Data)
		require.NoError(d.t, err)
		all = append(all, m)
	}
	return all
}

func (d *telegramDoor) settled() {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return d.server.Pending() == 0 }, patience, 5*time.Millisecond)
}

// pushCase injects the updates of a case, in the given order or in that of the case. They get new ids, so that they can
// come in any order and more than once.
func (d *telegramDoor) pushCase(id string, order ...int) {
	d.t.Helper()
	raw, err := os.ReadFile("testdata/telegram_cases.json")
	require.NoError(d.t, err)
	var cases map[string][]map[string]json.RawMessage
	require.NoError(d.t, json.Unmarshal(raw, &cases))
	if len(order) == 0 {
		for i := range cases[id] {
			order = append(order, i)
		}
	}
	for _, i := range order {
		delete(cases[id][i], "update_id")
		d.server.Push(cases[id][i])
	}
}

// journal keeps the messages of a logger.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, r.Message)
	return nil
}

func (j *journal) count(message string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, line := range j.lines {
		if line == message {
			n++
		}
	}
	return n
}

func (j *journal) await(t *testing.T, message string) {
	t.Helper()
	require.Eventually(t, func() bool { return j.count(message) > 0 }, patience, 5*time.Millisecond, message)
}

// logged are backends whose log is kept, on the given connection.
func (d *telegramDoor) logged(b *natsbus.Bus) (backends.Backends, *journal) {
	j := &journal{}
	all := d.Backends()
	all.Bus, all.Logger = b, slog.New(j)
	return all, j
}
