package app_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/webhook"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	"github.com/hermes-runtime/hermes/services/egress/app"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, redisserver.IgnoreProbes(), natsserver.IgnoreClock())
}

const soon = 10 * time.Second

func configured(t *testing.T, replyURL, secret string) config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(secret), 0o600))
	ref, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	cfg := config.Default()
	cfg.Channels = map[string]config.Channel{"ci": {Platform: "webhook", Webhook: config.Webhook{
		Unsigned: true, ReplyURL: replyURL, ReplySecret: ref, AllowPrivate: true,
	}}}
	return cfg
}

func TestApp_DeliversARunsReplyAndTellsObservers(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	receiver, err := fake.Start(t.Context(), "127.0.0.1:0", "s3cret")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, receiver.Close()) })
	a, err := app.New(configured(t, receiver.URL(), "s3cret"), env.Backends())
	require.NoError(t, err)
	servicetest.Start(t, a)
	events := make(chan bus.Msg, 16)
	sub, err := env.Bus.Listen("evt.>", events)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Close() }) // with the bus

	skey, runID := finishRun(t, env.Store)
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: skey, OutSeq: 1})
	require.NoError(t, err)
	_, err = env.Bus.Publish(t.Context(), bus.Msg{Subject: bus.OutSubject("webhook", skey), ID: "bell", Data: data})
	require.NoError(t, err)

	await.True(t, soon, func() bool { return len(receiver.Shown("room")) == 1 })
	got := receiver.Transcript()[0]
	require.Equal(t, "hello", got.Text)
	require.Equal(t, runID.String(), got.RunID)
	require.Equal(t, runID.String()+":1:1", got.ID)
	for _, want := range []event.Type{event.ResponseSent, event.ProcessingCompleted} {
		select {
		case m := <-events:
			ev, err := event.DecodeLifecycle(m.Data)
			require.NoError(t, err)
			require.Equal(t, want, ev.Type)
			require.Equal(t, runID.String(), ev.RunID)
			require.Equal(t, int64(1), ev.OutSeq)
			require.Equal(t, "sent", ev.Outcome)
			require.Equal(t, "room", ev.Address.ChatID)
		case <-time.After(soon):
			t.Fatalf("no %s", want)
		}
	}
}

// finishRun leaves a pending reply of a finished run.
func finishRun(t *testing.T, s store.Store) (string, uuid.UUID) {
	t.Helper()
	key := session.Key(session.Source{Platform: "webhook", ChatID: "room", ChatType: "dm"}, session.DefaultOptions())
	skey, runID := session.SKey("default", key), uuid.Must(uuid.NewV7())
	admitted, err := s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: skey, Tenant: "default", SessionKey: key, AgentID: "default", RunClass: "default", UID: "m1", Kind: store.KindUser,
		Body: json.RawMessage(`{}`), SessionID: uuid.Must(uuid.NewV7()), RunID: runID, WantsRun: true,
	}}})
	require.NoError(t, err)
	fence := store.Fence{SKey: skey, Gen: admitted[0].Gen, RunID: runID, Owner: "w/1"}
	claimed, err := s.Claim(t.Context(), []store.ClaimRequest{{Fence: fence}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	target, err := json.Marshal(event.Address{Platform: "webhook", Account: "ci", ChatID: "room"})
	require.NoError(t, err)
	finished, err := s.Finish(t.Context(), []store.Finish{{
		Fence: fence, RunGen: claimed[0].FirstGen, From: 1, To: 1, State: store.RunDone, NextRunID: uuid.Must(uuid.NewV7()),
		Replies: []store.NewReply{{Platform: "webhook", Target: target, Parts: channel.EncodeParts(channel.Part{Markdown: "hello"})}},
	}})
	require.NoError(t, err)
	require.Equal(t, store.Finished, finished[0].Outcome)
	return skey, runID
}

// TestApp_HooksThatHangOrFailDelayNothing: replies go out, and a hook that works is told, while another one has not answered
// its first event yet.
func TestApp_HooksThatHangOrFailDelayNothing(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	receiver, err := fake.Start(t.Context(), "127.0.0.1:0", "s3cret")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, receiver.Close()) })
	cfg := configured(t, receiver.URL(), "s3cret")
	secret := cfg.Channels["ci"].Webhook.ReplySecret
	hanging, failing := make(chan string, 64), make(chan string, 64)
	hang := endpoint(t, hanging, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	fail := endpoint(t, failing, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	cfg.Hooks = map[string]config.Hook{
		"hanging": {URL: hang, Secret: secret, AllowPrivate: true, Timeout: time.Hour},
		"failing": {URL: fail, Secret: secret, AllowPrivate: true},
		"audit":   {Subject: "audit"},
	}
	told := make(chan bus.Msg, 64)
	sub, err := env.Bus.Listen("audit.*", told)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Close() }) // with the bus
	a, err := app.New(cfg, env.Backends())
	require.NoError(t, err)
	servicetest.Start(t, a)

	skey, runID := finishRun(t, env.Store)
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: skey, OutSeq: 1})
	require.NoError(t, err)
	_, err = env.Bus.Publish(t.Context(), bus.Msg{Subject: bus.OutSubject("webhook", skey), ID: "bell", Data: data})
	require.NoError(t, err)
	await.True(t, soon, func() bool { return len(receiver.Shown("room")) == 1 })
	for _, want := range []event.Type{event.ResponseSent, event.ProcessingCompleted} {
		select {
		case m := <-told:
			require.Equal(t, "audit."+string(want), m.Subject)
			var body struct {
				Tenant string
				RunID  string `json:"run_id"`
			}
			require.NoError(t, json.Unmarshal(m.Data, &body))
			require.Equal(t, "default", body.Tenant)
			require.Equal(t, runID.String(), body.RunID)
		case <-time.After(soon):
			t.Fatalf("the hook was not told of %s", want)
		}
	}
	require.Equal(t, string(event.ResponseSent), <-hanging)
	require.Equal(t, string(event.ResponseSent), <-failing)
	require.Empty(t, hanging, "the first event has not been answered")
}

// endpoint is a hook that notes the types of its requests before it answers them.
func endpoint(t *testing.T, seen chan<- string, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Type string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("body of a hook: %v", err)
		}
		seen <- body.Type
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestApp_IsReadyWithBrokerAndStoreOnly(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	a, err := app.New(config.Default(), env.Backends())
	require.NoError(t, err)
	var names []string
	for _, c := range a.Checks() {
		names = append(names, c.Name)
		require.NoError(t, c.Ready(t.Context()))
		require.False(t, c.Optional)
	}
	require.Equal(t, []string{"nats", "postgres"}, names)
	require.NoError(t, a.Stop(t.Context()), "before Start")
}

func TestApp_GoesOnWithoutRedis(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	redis := redisserver.NewMini(t)
	leases, err := redislease.Open(t.Context(), redislease.Config{URL: "redis://" + redis.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, leases.Close()) })
	redis.Close()
	receiver, err := fake.Start(t.Context(), "127.0.0.1:0", "s3cret")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, receiver.Close()) })
	b := env.Backends()
	b.Leases = leases
	a, err := app.New(configured(t, receiver.URL(), "s3cret"), b)
	require.NoError(t, err)
	servicetest.Start(t, a)
	checks := a.Checks()
	require.Equal(t, "redis", checks[2].Name)
	require.True(t, checks[2].Optional)
	require.ErrorIs(t, checks[2].Ready(t.Context()), lease.ErrUnavailable)

	skey, _ := finishRun(t, env.Store)
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: skey, OutSeq: 1})
	require.NoError(t, err)
	_, err = env.Bus.Publish(t.Context(), bus.Msg{Subject: bus.OutSubject("webhook", skey), ID: "bell", Data: data})
	require.NoError(t, err)
	await.True(t, soon, func() bool { return len(receiver.Shown("room")) == 1 })
}

func TestNew_RefusesASecretThatIsNotThere(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "https://example.test/x", "whsec_not-base64!")
	_, err := app.New(cfg, servicetest.New(t).Backends())
	require.ErrorContains(t, err, "webhook replies: channel ci: secret file:")
	require.NotContains(t, err.Error(), "not-base64!")
}
