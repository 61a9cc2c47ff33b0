package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/services/ingress/app"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

type door struct {
	*servicetest.Env
	t      *testing.T
	url    string
	client *http.Client
}

func secretFile(t *testing.T, value string) config.Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(value), 0o600))
	s, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	return s
}

func setup(t *testing.T) *door {
	t.Helper()
	return setupWith(t, 64<<10)
}

func setupWith(t *testing.T, maxBody int64) *door {
	t.Helper()
	d := &door{Env: servicetest.New(t), t: t, client: &http.Client{Transport: &http.Transport{}}}
	cfg := config.Default()
	cfg.Ingress.Addr = "127.0.0.1:0"
	cfg.Engine.MaxBodyBytes = maxBody
	cfg.Channels = map[string]config.Channel{
		"open": {Platform: "webhook", Webhook: config.Webhook{Unsigned: true, PolicyPointer: "/how/busy"}},
		"hasty": {Platform: "webhook", BusyPolicy: event.PolicyInterrupt, Webhook: config.Webhook{
			Unsigned: true, PolicyPointer: "/busy",
		}},
		"signed": {Platform: "webhook", Webhook: config.Webhook{
			Secrets:  []config.Secret{secretFile(t, "next"), secretFile(t, hookSecret)},
			ReplyURL: "https://example.test/replies", ConversationPointer: "/data/room", TextPointer: "/data/text",
		}},
	}
	a, err := app.New(cfg, d.Backends())
	require.NoError(t, err)
	servicetest.Start(t, a)
	t.Cleanup(d.client.CloseIdleConnections)
	d.url = "http://" + a.Addr() + "/v1/hooks/"
	return d
}

type answer struct {
	status    int
	header    http.Header
	MessageID string `json:"message_id"`
	Duplicate bool   `json:"duplicate"`
	Error     struct{ Message, Type, Param, Code string }
}

func (d *door) do(method, channel string, header http.Header, body string) answer {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+channel, strings.NewReader(body))
	require.NoError(d.t, err)
	req.Header = header
	resp, err := d.client.Do(req)
	require.NoError(d.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(d.t, err)
	a := answer{status: resp.StatusCode, header: resp.Header}
	require.Equal(d.t, "application/json", resp.Header.Get("Content-Type"))
	require.NoError(d.t, json.Unmarshal(raw, &a), "%s", raw)
	require.NotContains(d.t, string(raw), hookSecret)
	return a
}

func jsonHeader(pairs ...string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func (d *door) post(body string, pairs ...string) answer {
	d.t.Helper()
	return d.do(http.MethodPost, "open", jsonHeader(pairs...), body)
}

func signed(t *testing.T, secret, id string, at time.Time, body string) http.Header {
	t.Helper()
	k, err := webhook.ParseKey(secret)
	require.NoError(t, err)
	h := jsonHeader()
	k.SetHeaders(h, id, at, []byte(body))
	return h
}

func TestHook_AcceptsASignedEvent(t *testing.T) {
	t.Parallel()
	d := setup(t)
	body := `{"data":{"room":"r:1","text":"hello"},"user":"ann"}`
	a := d.do(http.MethodPost, "signed", signed(t, hookSecret, "evt-1", time.Now(), body), body)
	require.Equal(t, http.StatusAccepted, a.status)
	require.False(t, a.Duplicate)
	require.Equal(t, 1, d.Stored(t))

	entry := d.Entry(t, 1)
	m, err := event.Decode(entry.Data)
	require.NoError(t, err)
	require.Equal(t, a.MessageID, accept.MessageID(m.SKey, m.UID))
	require.Equal(t, m.UID, entry.ID)
	require.Equal(t, session.Source{
		Platform: "webhook", Account: "signed", ChatID: "r%3A1", ChatType: "dm", UserID: "ann",
	}, m.Source)
	require.Equal(t, event.Address{Platform: "webhook", Account: "signed", ChatID: "r:1"}, m.ReplyTo)
	require.Equal(t, "hello", m.Text)
	require.Equal(t, "evt-1", m.PlatformMessageID)
	require.Equal(t, "default", m.Tenant)
	require.Equal(t, "default", m.RunClass)

	again := d.do(http.MethodPost, "signed", signed(t, "next", "evt-1", time.Now(), body), body)
	require.Equal(t, http.StatusAccepted, again.status)
	require.True(t, again.Duplicate, "a repetition, signed with the other secret of a rotation")
	require.Equal(t, a.MessageID, again.MessageID)
	require.Equal(t, 1, d.Stored(t))
}

func TestHook_WithoutReplyURLIsReadThroughTheAPI(t *testing.T) {
	t.Parallel()
	d := setup(t)
	require.Equal(t, http.StatusAccepted, d.post(`{"conversation":"c","text":"/help"}`).status)
	m, err := event.Decode(d.Entry(t, 1).Data)
	require.NoError(t, err)
	require.True(t, m.ReplyTo.Read())
	require.Equal(t, event.KindCommand, m.Kind)
}

func TestHook_RefusesWhatIsNotSignedAndStoresNothing(t *testing.T) {
	t.Parallel()
	d := setup(t)
	body := `{"data":{"room":"r1","text":"hello"}}`
	now := time.Now()
	tampered := signed(t, hookSecret, "e", now, body)
	tampered.Set(webhook.HeaderID, "f")
	for name, h := range map[string]http.Header{
		"unsigned":     jsonHeader(),
		"other secret": signed(t, "wrong", "e", now, body),
		"too old":      signed(t, hookSecret, "e", now.Add(-6*time.Minute), body),
		"too new":      signed(t, hookSecret, "e", now.Add(6*time.Minute), body),
		"other body":   signed(t, hookSecret, "e", now, body+" "),
		"other id":     tampered,
	} {
		a := d.do(http.MethodPost, "signed", h, body)
		require.Equal(t, http.StatusUnauthorized, a.status, name)
		require.Equal(t, "authentication_error", a.Error.Type, name)
	}
	require.Zero(t, d.Stored(t))
}

func TestHook_NamesWhatIsWrongAndStoresNothing(t *testing.T) {
	t.Parallel()
	d := setup(t)
	for _, c := range []struct {
		name, body   string
		header       http.Header
		status       int
		param, error string
	}{
		{"no conversation", `{"text":"x"}`, jsonHeader(), 400, "conversation", "conversation: must not be empty"},
		{"empty conversation", `{"text":"x","conversation":""}`, jsonHeader(), 400, "conversation", "conversation: must not be empty"},
		{"NUL in id", `{"text":"x","conversation":"a\u0000"}`, jsonHeader(), 400, "conversation", "conversation: contains a NUL byte"},
		{"NUL in text", `{"text":"a\u0000b","conversation":"c"}`, jsonHeader(), 400, "text", "text: contains a NUL byte"},
		{"half a character", `{"text":"x","conversation":"a\ud800"}`, jsonHeader(), 400, "conversation", "conversation: not valid UTF-8"},
		{"long id", `{"text":"x","conversation":"` + strings.Repeat("a", 513) + `"}`, jsonHeader(), 400, "conversation", "conversation: 513 bytes, at most 512 are allowed"},
		{"user type", `{"text":"x","conversation":"c","user":{}}`, jsonHeader(), 400, "user", "user: must be a string"},
		{"long event id", `{"text":"x","conversation":"c"}`, jsonHeader("Idempotency-Key", strings.Repeat("a", 513)), 400, "Idempotency-Key", "Idempotency-Key: 513 bytes, at most 512 are allowed"},
		{"no text", `{"conversation":"c"}`, jsonHeader(), 400, "text", "text: has no content"},
		{"invisible text", `{"conversation":"c","text":"\u200b\ufeff"}`, jsonHeader(), 400, "text", "text: has no content"},
		{"policy", `{"conversation":"c","text":"x","how":{"busy":"hurry"}}`, jsonHeader(), 400, "how/busy", `how/busy: "hurry" is none of queue, collect, latest, steer, interrupt, reject`},
		{"policy type", `{"conversation":"c","text":"x","how":{"busy":true}}`, jsonHeader(), 400, "how/busy", "how/busy: must be a string"},
		{"not JSON", `text=x`, jsonHeader(), 400, "body", "body: is not a JSON object"},
		{"invalid UTF-8", "{\"conversation\":\"c\",\"text\":\"\xff\"}", jsonHeader(), 400, "body", "body: not valid UTF-8"},
		{"form", `text=x`, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, 415, "Content-Type", "Content-Type: must be application/json"},
		{"no type", `{}`, http.Header{}, 415, "Content-Type", "Content-Type: must be application/json"},
		{"too large", `{"text":"` + strings.Repeat("a", 64<<10) + `"}`, jsonHeader(), 413, "body", "body: over 65536 bytes"},
	} {
		a := d.do(http.MethodPost, "open", c.header, c.body)
		require.Equal(t, c.status, a.status, c.name)
		require.Equal(t, c.param, a.Error.Param, c.name)
		require.Equal(t, c.error, a.Error.Message, c.name)
		require.Equal(t, "invalid_request_error", a.Error.Type, c.name)
		require.NotEmpty(t, a.Error.Code, c.name)
	}
	require.Zero(t, d.Stored(t))
}

func TestHook_CarriesTheBusyPolicyOfTheMessageOrTheChannel(t *testing.T) {
	t.Parallel()
	d := setup(t)
	for i, c := range []struct {
		channel, body string
		want          event.Policy
	}{
		{"open", `{"conversation":"c","text":"1","how":{"busy":"steer"}}`, event.PolicySteer},
		{"open", `{"conversation":"c","text":"2"}`, ""},
		{"hasty", `{"conversation":"c","text":"3","busy":"latest"}`, event.PolicyLatest},
		{"hasty", `{"conversation":"c","text":"4"}`, event.PolicyInterrupt},
	} {
		require.Equal(t, http.StatusAccepted, d.do(http.MethodPost, c.channel, jsonHeader(), c.body).status, c.body)
		m, err := event.Decode(d.Entry(t, i+1).Data)
		require.NoError(t, err)
		require.Equal(t, c.want, m.BusyPolicy, c.body)
	}
}

// TestENG12_EventsThatAreTooLargeForTheBus: what does not fit into a message of the broker is kept in its object store, and
// the connection goes on.
func TestENG12_EventsThatAreTooLargeForTheBus(t *testing.T) {
	t.Parallel()
	d := setupWith(t, config.Default().Engine.MaxBodyBytes)
	long, wide := strings.Repeat("x", 2_000_000), strings.Repeat("水", 349_500)
	for i, text := range []string{long, "small", wide} {
		require.Equal(t, http.StatusAccepted, d.post(`{"conversation":"c","text":"`+text+`"}`).status)
		entry := d.Entry(t, i+1)
		require.LessOrEqual(t, len(entry.Data), event.MaxEncodedBytes)
		m, err := event.Decode(entry.Data)
		require.NoError(t, err)
		if text == "small" {
			require.Equal(t, text, m.Text)
			continue
		}
		whole, err := d.Bus.GetObject(t.Context(), m.BlobRef)
		require.NoError(t, err)
		require.NoError(t, m.Attach(whole))
		require.Equal(t, text, m.Text)
	}
	tooLong := d.post(`{"conversation":"c","text":"` + strings.Repeat("x", 20<<20) + `"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, tooLong.status)
	require.Equal(t, http.StatusAccepted, d.post(`{"conversation":"c","text":"after it"}`).status)
	require.Equal(t, 4, d.Stored(t))
}

func TestHook_AnswersInJSONWhereThereIsNothing(t *testing.T) {
	t.Parallel()
	d := setup(t)
	require.Equal(t, http.StatusNotFound, d.do(http.MethodPost, "nobody", jsonHeader(), `{}`).status)
	a := d.do(http.MethodGet, "open", http.Header{}, "")
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, "POST", a.header.Get("Allow"))
	require.Equal(t, http.StatusNotFound, d.do(http.MethodGet, "a/b/c", http.Header{}, "").status)
	require.Equal(t, http.StatusNotFound, d.do(http.MethodPost, "../x", jsonHeader(), "{}").status)
}

func TestHook_IdentifiesEventsByKeyThenBody(t *testing.T) {
	t.Parallel()
	d := setup(t)
	body := `{"conversation":"c","text":"x"}`
	require.False(t, d.post(body, "webhook-id", "1").Duplicate)
	require.True(t, d.post(body, "webhook-id", "1", "Idempotency-Key", "2").Duplicate)
	require.False(t, d.post(body, "Idempotency-Key", "2").Duplicate)
	require.False(t, d.post(`{"conversation":"d","text":"x"}`, "webhook-id", "1").Duplicate, "another conversation")
	require.Equal(t, 3, d.Stored(t))
}

func TestENG13_ClientChosenIDsNeverLeaveTheirPlace(t *testing.T) {
	t.Parallel()
	d := setup(t)
	raw, err := os.ReadFile("testdata/client_ids.json")
	require.NoError(t, err)
	var ids []string
	require.NoError(t, json.Unmarshal(raw, &ids))
	ids = append(ids, "a%3Ab", "a:b", "dm:a", "%", "日本")

	skeys := map[string]string{}
	for _, id := range ids {
		body, err := json.Marshal(map[string]string{"conversation": id, "text": "hello"})
		require.NoError(t, err)
		a := d.post(string(body), "webhook-id", "same-for-all")
		require.Equal(t, http.StatusAccepted, a.status, "%q", id)
		require.False(t, a.Duplicate, "%q", id)

		entry := d.Entry(t, d.Stored(t))
		tokens := strings.Split(entry.Subject, ".")
		require.Len(t, tokens, 4, "%q", id)
		require.Equal(t, "ing", tokens[0])
		require.Equal(t, "default", tokens[2])
		require.Len(t, tokens[3], session.SKeyLen)
		require.NotContains(t, skeys, tokens[3], "%q shares a session with %q", id, skeys[tokens[3]])
		skeys[tokens[3]] = id

		m, err := event.Decode(entry.Data)
		require.NoError(t, err)
		require.Equal(t, id, m.ReplyTo.ChatID, "replies carry the id as the client wrote it")
	}
	require.Equal(t, len(ids), d.Stored(t))

	a := d.post(`{"conversation":"","text":"hello"}`)
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Equal(t, "conversation", a.Error.Param)
}

func TestHook_RefusesWhileTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	d := setup(t)
	require.NoError(t, d.Server.Shutdown())
	a := d.post(`{"conversation":"c","text":"x"}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "unavailable_error", a.Error.Type)
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, seconds)
}

func TestNew_RefusesAnUnsignedChannelOnAPublicAddress(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Ingress.Addr = "0.0.0.0:0"
	cfg.Channels = map[string]config.Channel{"open": {Platform: "webhook", Webhook: config.Webhook{Unsigned: true}}}
	_, err := app.New(cfg, servicetest.New(t).Backends())
	require.EqualError(t, err, "channels.open.webhook: unsigned: is only allowed while ingress.addr 0.0.0.0:0 is a loopback address")
}

func TestApp_IsNotReadyWithoutTheBroker(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	a, err := app.New(config.Default(), env.Backends())
	require.NoError(t, err)
	checks := a.Checks()
	require.Len(t, checks, 1)
	require.NoError(t, checks[0].Ready(t.Context()))
	require.NoError(t, env.Server.Shutdown())
	require.Eventually(t, func() bool { return checks[0].Ready(t.Context()) != nil }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, a.Stop(t.Context()), "stop before start")
}
