package webhook_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
)

func key(t *testing.T, secret string) webhook.Key {
	t.Helper()
	k, err := webhook.ParseKey(secret)
	require.NoError(t, err)
	return k
}

// The example of the Standard Webhooks specification.
func TestVerify_AcceptsTheSpecificationsExample(t *testing.T) {
	t.Parallel()
	k := key(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	body := []byte(`{"test": 2432232314}`)
	header := http.Header{}
	header.Set(webhook.HeaderID, "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set(webhook.HeaderTimestamp, "1614265330")
	header.Set(webhook.HeaderSignature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	at := time.Unix(1614265330, 0)
	require.NoError(t, webhook.Verify([]webhook.Key{k}, header, body, at))
	require.NoError(t, webhook.Verify([]webhook.Key{key(t, "new"), k}, header, body, at.Add(webhook.Window)), "rotation")
	require.Equal(t, header.Get(webhook.HeaderSignature), k.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, body))

	header.Set(webhook.HeaderSignature, "v1a,xyz v1,AAAA "+header.Get(webhook.HeaderSignature))
	require.NoError(t, webhook.Verify([]webhook.Key{k}, header, body, at), "one of several signatures")
}

func TestVerify_RefusesWhatIsNotSignedNow(t *testing.T) {
	t.Parallel()
	k := key(t, plainSecret)
	body := []byte(`{}`)
	now := time.Unix(1_767_225_600, 0)
	for name, change := range map[string]func(h http.Header){
		"webhook-id must have 1 to 256 bytes":         func(h http.Header) { h.Del(webhook.HeaderID) },
		"webhook-timestamp is not a number":           func(h http.Header) { h.Del(webhook.HeaderTimestamp) },
		"webhook-signature is missing":                func(h http.Header) { h.Del(webhook.HeaderSignature) },
		"no signature matches":                        func(h http.Header) { h.Set(webhook.HeaderID, "other") },
		"webhook-timestamp is more than 5m0s from no": func(h http.Header) { k.SetHeaders(h, "id", now.Add(-webhook.Window-time.Second), body) },
		"webhook-timestamp is more than 5m0s from":    func(h http.Header) { k.SetHeaders(h, "id", now.Add(webhook.Window+time.Second), body) },
	} {
		header := http.Header{}
		k.SetHeaders(header, "id", now, body)
		require.NoError(t, webhook.Verify([]webhook.Key{k}, header, body, now))
		change(header)
		err := webhook.Verify([]webhook.Key{k}, header, body, now)
		require.ErrorIs(t, err, webhook.ErrSignature)
		require.ErrorContains(t, err, name)
	}
	header := http.Header{}
	k.SetHeaders(header, "id", now, body)
	require.ErrorIs(t, webhook.Verify([]webhook.Key{k}, header, []byte(`{ }`), now), webhook.ErrSignature, "another body")
	require.ErrorIs(t, webhook.Verify(nil, header, body, now), webhook.ErrSignature, "no key")
}

func TestKey_DoesNotPrint(t *testing.T) {
	t.Parallel()
	k := key(t, plainSecret)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", k, k, k, k), plainSecret)
	_, err := webhook.ParseKey("whsec_not-base64!")
	require.EqualError(t, err, "secret after whsec_ is not base64")
	raw := base64.StdEncoding.EncodeToString([]byte("abc"))
	require.Equal(t, key(t, "abc").Sign("i", time.Unix(1, 0), nil), key(t, "whsec_"+raw).Sign("i", time.Unix(1, 0), nil))
}

func receiver(t *testing.T, cfg config.Webhook) *webhook.Receiver {
	t.Helper()
	cfg.Unsigned = len(cfg.Secrets) == 0
	r, err := webhook.NewReceiver(cfg)
	require.NoError(t, err)
	return r
}

func TestParse_ReadsFieldsByPointer(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_767_225_600, 0)
	in, err := receiver(t, config.Webhook{}).Parse(http.Header{"Webhook-Id": {"w1"}, "Idempotency-Key": {"k1"}},
		[]byte(`{"text":"hi","conversation":"c","user":"u","thread":"t","else":{}}`), now)
	require.NoError(t, err)
	require.Equal(t, webhook.Incoming{
		Text: "hi", Conversation: "c", User: "u", Thread: "t", ID: "w1",
		ConversationField: "conversation", UserField: "user", ThreadField: "thread", IDField: "webhook-id",
	}, in)

	in, err = receiver(t, config.Webhook{
		TextPointer: "/data/items/0/a~1b", ConversationPointer: "/data/chat", UserPointer: "/nobody", IDPointer: "/seq",
	}).Parse(http.Header{}, []byte(`{"data":{"items":[{"a/b":"x"}],"chat":-1001234567890123456789},"seq":7}`), now)
	require.NoError(t, err)
	require.Equal(t, "x", in.Text)
	require.Equal(t, "-1001234567890123456789", in.Conversation, "numbers keep every digit")
	require.Equal(t, "7", in.ID)
	require.Empty(t, in.User)
}

func TestParse_ChoosesTheEventID(t *testing.T) {
	t.Parallel()
	r := receiver(t, config.Webhook{})
	now := time.Unix(1_767_225_600, 0)
	parse := func(h http.Header, body string, at time.Time) string {
		in, err := r.Parse(h, []byte(body), at)
		require.NoError(t, err)
		return in.ID
	}
	require.Equal(t, "k1", parse(http.Header{"Idempotency-Key": {"k1"}}, `{}`, now))
	hash := parse(nil, `{"text":"a"}`, now)
	require.Equal(t, hash, parse(nil, `{"text":"a"}`, now.Add(299*time.Second)))
	require.NotEqual(t, hash, parse(nil, `{"text":"a"}`, now.Add(webhook.Window)))
	require.NotEqual(t, hash, parse(nil, `{"text":"b"}`, now))
}

func TestParse_NamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                      "body: is not a JSON object",
		`[]`:                    "body: is not a JSON object",
		`null`:                  "body: is not a JSON object",
		`{"text":"a"} {}`:       "body: goes on after the JSON object",
		"{\"text\":\"\xff\"}":   "body: not valid UTF-8",
		`{"text":true}`:         "text: must be a string",
		`{"conversation":{}}`:   "conversation: must be a string",
		`{"user":[]}`:           "user: must be a string",
		`{"thread":{"id":"x"}}`: "thread: must be a string",
	} {
		_, err := receiver(t, config.Webhook{}).Parse(nil, []byte(body), time.Now())
		require.EqualError(t, err, want, body)
	}
	_, err := receiver(t, config.Webhook{IDPointer: "/event/id"}).Parse(nil, []byte(`{}`), time.Now())
	require.EqualError(t, err, "event/id: is missing")
}

func TestNewReceiver_NeedsASecretOrToBeUnsigned(t *testing.T) {
	t.Parallel()
	_, err := webhook.NewReceiver(config.Webhook{})
	require.EqualError(t, err, "a webhook needs a secret unless it is unsigned")

	r, err := webhook.NewReceiver(config.Webhook{Unsigned: true, Secrets: []config.Secret{secret(t, plainSecret)}})
	require.NoError(t, err)
	header := http.Header{webhook.HeaderTimestamp: {strconv.FormatInt(time.Now().Unix(), 10)}}
	require.ErrorIs(t, r.Verify(header, nil, time.Now()), webhook.ErrSignature, "a secret wins over unsigned")
}
