package webhook_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
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
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const plainSecret = "a-very-plain-secret"

func secret(t *testing.T, value string) config.Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(value), 0o600))
	s, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	return s
}

func newSender(t *testing.T, cfg config.Webhook) *webhook.Sender {
	t.Helper()
	s, err := webhook.NewSender(map[string]config.Webhook{"ci": cfg})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func newReceiver(t *testing.T) *fake.Receiver {
	t.Helper()
	r, err := fake.Start(t.Context(), "127.0.0.1:0", plainSecret)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func target() event.Address {
	return event.Address{Platform: webhook.Platform, Account: "ci", ChatID: "room:1", ThreadID: "t1"}
}

// platform lets the suite drive the fake.
type platform struct{ *fake.Receiver }

func (p platform) Answer(as ...channeltest.Answer) {
	for _, a := range as {
		header := http.Header{}
		if a.RetryAfter > 0 {
			header.Set("Retry-After", strconv.Itoa(int(a.RetryAfter/time.Second)))
		}
		if a.Location != "" {
			header.Set("Location", a.Location)
		}
		p.Receiver.Answer(fake.Answer{Status: a.Status, Header: header, Hang: a.Hang, Reset: a.Reset})
	}
}

func (p platform) Seen() []channeltest.Seen {
	var seen []channeltest.Seen
	for _, m := range p.Transcript() {
		seen = append(seen, channeltest.Seen{ChatID: m.Conversation, ThreadID: m.Thread, Text: m.Text, IdemKey: m.ID})
	}
	return seen
}

func (p platform) Shown() []string { return p.Receiver.Shown(target().ChatID) }

func TestSender_Conforms(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, channeltest.Features{Sample: channeltest.Sample}, func(t *testing.T) channeltest.Bundle {
		t.Helper()
		r := newReceiver(t)
		return channeltest.Bundle{
			Sender: newSender(t, config.Webhook{
				ReplyURL: r.URL() + "?token=url-token", ReplySecret: secret(t, plainSecret), AllowPrivate: true,
			}),
			Platform: platform{r}, Target: target(), Credentials: []string{plainSecret, "url-token"},
		}
	})
}

func TestSender_SignsAndTellsWhatAReceiverNeeds(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := newSender(t, config.Webhook{ReplyURL: r.URL(), ReplySecret: secret(t, plainSecret), AllowPrivate: true})
	id, err := s.Send(t.Context(), channel.Send{
		Target: target(), Part: channel.Part{Markdown: "**done**", Notice: true}, IdemKey: "run-1:1:1", RunID: "run-1",
		CreatedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	require.NoError(t, err)
	require.Equal(t, "run-1:1:1", id)
	got := r.Transcript()
	require.Len(t, got, 1)
	require.True(t, got[0].Signed)
	require.Equal(t, "run-1:1:1", got[0].ID)
	require.JSONEq(t, `{"type":"message","channel":"ci","conversation":"room:1","thread":"t1","run_id":"run-1",
		"message_id":"run-1:1:1","text":"**done**","parts":[{"markdown":"**done**","notice":true}],
		"created_at":"2026-01-01T00:00:00Z"}`, string(got[0].Body))
}

func TestSender_RefusesAddressesInsideUnlessAllowed(t *testing.T) {
	t.Parallel()
	hit := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hit <- struct{}{} }))
	t.Cleanup(server.Close)
	for _, url := range []string{
		server.URL, "http://localhost:1/x", "http://10.0.0.1/", "http://169.254.169.254/latest", "http://192.168.1.1/",
		"http://172.16.0.1/", "http://100.64.0.1/", "http://0.0.0.0/", "http://[::1]/", "http://[fd00::1]/", "http://[fe80::1]/",
		"http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://224.0.0.1/",
	} {
		s := newSender(t, config.Webhook{ReplyURL: url, ReplySecret: secret(t, plainSecret)})
		_, err := s.Send(t.Context(), channel.Send{Target: target(), IdemKey: "k"})
		require.EqualError(t, err, "send: permanent: the address of the receiver is not public", url)
	}
	require.Empty(t, hit)
}

func TestSender_FailsForGoodWithoutAReplyURL(t *testing.T) {
	t.Parallel()
	s := newSender(t, config.Webhook{})
	for _, account := range []string{"ci", "unknown"} {
		_, err := s.Send(t.Context(), channel.Send{Target: event.Address{Account: account}})
		require.Equal(t, channel.Permanent, channel.ClassOf(err))
	}
}

func TestSender_SeesARotatedSecret(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	ref, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	s := newSender(t, config.Webhook{ReplyURL: r.URL(), ReplySecret: ref, AllowPrivate: true})
	_, err = s.Send(t.Context(), channel.Send{Target: target(), IdemKey: "k"})
	require.Equal(t, channel.Permanent, channel.ClassOf(err), "signed with another secret: 401")
	require.NoError(t, os.WriteFile(path, []byte(plainSecret+"\n"), 0o600))
	_, err = s.Send(t.Context(), channel.Send{Target: target(), IdemKey: "k"})
	require.NoError(t, err)
}

func TestReceiver_ShowsEachMessageOnce(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.Answer(fake.Answer{Status: http.StatusBadGateway, Keep: true})
	s := newSender(t, config.Webhook{ReplyURL: r.URL(), ReplySecret: secret(t, plainSecret), AllowPrivate: true})
	m := channel.Send{Target: target(), Part: channel.Part{Markdown: "hi"}, IdemKey: "k"}
	_, err := s.Send(t.Context(), m)
	require.Error(t, err)
	_, err = s.Send(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, []string{"hi"}, r.Shown("room:1"))

	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(r.URL(), "/replies")+"/transcript", nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var log []fake.Received
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&log))
	require.Len(t, log, 2)
}
