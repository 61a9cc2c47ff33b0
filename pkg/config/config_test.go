package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/config"
)

func load(t *testing.T, yaml string, environ ...string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hermes.yaml")
	require.NoError(t, os.WriteFile(path, []byte(yaml), 0o600))
	return config.Load(path, environ)
}

func TestDefault_IsValid(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", nil)
	require.NoError(t, err)
	require.NoError(t, cfg.Validate())
	require.Equal(t, config.Default(), cfg)
}

func TestLoad_EnvironmentWinsOverFileOverDefault(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "api: {addr: '127.0.0.1:1'}\nworker: {slots: 3, grace: 40s}\nchannels: {ci: {platform: webhook, webhook: {text_pointer: /a.b}}}",
		"HERMES_API_ADDR=127.0.0.1:2", "HERMES_WORKER_POOLS=a,b", "HERMES_CONFIG=ignored", "PATH=/bin", "HERMES_NATS_STREAMS_STREAMS=16")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:2", cfg.API.Addr)
	require.Equal(t, 3, cfg.Worker.Slots)
	require.Equal(t, 40*time.Second, cfg.Worker.Grace)
	require.Equal(t, []string{"a", "b"}, cfg.Worker.Pools)
	require.Equal(t, 16, cfg.NATS.Streams.Streams)
	require.Equal(t, "/a.b", cfg.Channels["ci"].Webhook.TextPointer)
	require.Equal(t, config.Default().Toolexec, cfg.Toolexec)
}

func TestLoad_RefusesUnknownKeysAndVariables(t *testing.T) {
	t.Parallel()
	_, err := load(t, "worker: {slotz: 3}")
	require.ErrorContains(t, err, "slotz")
	_, err = load(t, "profiles: {a: {provider: demo, promt: x}}")
	require.ErrorContains(t, err, "promt")
	_, err = config.Load("", []string{"HERMES_WORKER_SLOTZ=3", "HERMES_A=1"})
	require.EqualError(t, err, "environment: HERMES_A, HERMES_WORKER_SLOTZ: no such configuration key")
	_, err = config.Load(filepath.Join(t.TempDir(), "none.yaml"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestLoad_RefusesASecretInPlainText(t *testing.T) {
	t.Parallel()
	_, err := load(t, "providers: {o: {kind: openai, api_key: sk-verysecret}}")
	require.ErrorContains(t, err, "a secret must be a reference, env:NAME or file:PATH")
	require.NotContains(t, err.Error(), "verysecret")
}

func TestSecret_ReadsAndNeverPrintsTheValue(t *testing.T) {
	t.Setenv("HERMES_TEST_SECRET_VALUE", "s3cret")
	s, err := config.NewSecret("env:HERMES_TEST_SECRET_VALUE")
	require.NoError(t, err)
	value, err := s.Value()
	require.NoError(t, err)
	require.Equal(t, "s3cret", value)
	require.Equal(t, "env:HERMES_TEST_SECRET_VALUE", fmt.Sprintf("%v %s", s, s)[:28])
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", s, s, s), "s3cret")

	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte("from-file\n"), 0o600))
	s, err = config.NewSecret("file:" + path)
	require.NoError(t, err)
	value, err = s.Value()
	require.NoError(t, err)
	require.Equal(t, "from-file", value)
}

func TestValidate_NamesEveryProblemOnItsOwnLine(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, `
tenants: {acme: {}}
profiles:
  a: {provider: nope, busy_policy: shout, limits: {steps: 2000}}
  b: {provider: o}
providers:
  demo: {kind: demo}
  o: {kind: openai, base_url: 'ftp://x', api_key: env:HERMES_TEST_UNSET}
  p: {kind: telepathy}
channels:
  one: {platform: webhook, tenant: acme, profile: b, webhook: {unsigned: true}}
  two: {platform: webhook, tenant: acme, profile: b, webhook: {unsigned: true, reply_url: 'https://h/x', text_pointer: text}}
  three: {platform: pigeon, tenant: none, profile: c}
api: {addr: '0.0.0.0:80', profile: b}
ingress: {addr: ':81'}
nats: {streams: {streams: 3}}
postgres: {url: 'mysql://secret:pw@h/db'}
egress: {send_timeout: 30s}
engine: {inbox_retention: 72h}
worker: {grace: 5s}
`)
	require.NoError(t, err)
	require.EqualError(t, cfg.Validate(), `providers.o.base_url: scheme "ftp" is not one of http, https
providers.p.kind: "telepathy" is neither demo nor openai
profiles.a.provider: "nope" is not in providers
profiles.a.busy_policy: "shout" is none of queue, collect, latest, steer, interrupt, reject
profiles.a.limits.steps: 2000 is not between 1 and 1000
profiles.b.model: provider "o" has no model of its own, name one
channels.one.webhook.unsigned: is only allowed while ingress.addr :81 is a loopback address
channels.three.tenant: "none" is not in tenants
channels.three.profile: "c" is not in profiles
channels.three.platform: "pigeon" is not known, webhook and telegram are
channels.two.webhook.unsigned: is only allowed while ingress.addr :81 is a loopback address
channels.two.webhook.reply_secret: is needed with reply_url
channels.two.webhook.text_pointer: "text" is no JSON pointer, it must begin with /
channels.two.profile: "b" already answers channel "one" of the same platform, so that their chats would share keys; use another profile or set profiles.b.share_sessions
api.keys: at least one is needed unless api.addr 0.0.0.0:80 is a loopback address
postgres.url: scheme "mysql" is not one of postgres, postgresql
nats.streams.streams: 3 does not divide 64
worker.grace: 5s is under 30s
engine.inbox_retention: 72h0m0s must exceed nats.streams.ingest_max_age 72h0m0s plus the longest platform redelivery (240h)
egress.send_timeout: 30s must be positive and at most 20s, so that a send ends within its claim`)
}

func TestCheckSecrets_NamesKeyAndReference(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, `
providers: {o: {kind: openai, model: m, api_key: env:HERMES_TEST_UNSET}}
channels: {ci: {platform: webhook, webhook: {secrets: ['env:HERMES_TEST_UNSET'], reply_secret: 'file:/nonexistent'}}}
api: {keys: {me: {secret: env:HERMES_TEST_UNSET, user: me}}}
`)
	require.NoError(t, err)
	require.NoError(t, cfg.Validate(), "a service that does not use a secret starts without it")
	require.EqualError(t, cfg.CheckSecrets(), `providers.o.api_key: secret env:HERMES_TEST_UNSET: is empty or not set
channels.ci.webhook.secrets[0]: secret env:HERMES_TEST_UNSET: is empty or not set
channels.ci.webhook.reply_secret: secret file:/nonexistent: open /nonexistent: no such file or directory
api.keys.me.secret: secret env:HERMES_TEST_UNSET: is empty or not set`)
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:80": true, "localhost:80": true, "[::1]:80": true,
		":80": false, "0.0.0.0:80": false, "10.0.0.1:80": false, "nonsense": false,
	} {
		require.Equal(t, want, config.Loopback(addr), addr)
	}
}

func TestValidate_TelegramChannels(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Profiles["other"] = cfg.Profiles["default"]
	token, err := config.NewSecret("env:BOT_TOKEN")
	require.NoError(t, err)
	cfg.Channels = map[string]config.Channel{
		"good": {Platform: "telegram", Telegram: config.Telegram{Token: token, AllowUsers: []string{"*"}, AllowChats: []string{"-100"}}},
		"bad": {Platform: "telegram", Profile: "other", Telegram: config.Telegram{
			Mode: "push", APIURL: "ftp://x", Groups: "some", Streaming: "loud", AllowUsers: []string{"@ann"},
		}},
	}
	require.EqualError(t, cfg.Validate(), `channels.bad.telegram.token: must not be empty
channels.bad.telegram.api_url: scheme "ftp" is not one of http, https
channels.bad.telegram.mode: "push" is neither poll nor webhook
channels.bad.telegram.groups: "some" is not one of mention, always
channels.bad.telegram.streaming: "loud" is not one of auto, off
channels.bad.telegram.allow_users[0]: "@ann" is neither a numeric id nor *`)

	cfg.Channels = map[string]config.Channel{"hook": {Platform: "telegram", Telegram: config.Telegram{Token: token, Mode: "webhook"}}}
	require.EqualError(t, cfg.Validate(), "channels.hook.telegram.webhook_secret: is needed with mode webhook")
}

func TestValidate_BusyPoliciesHooksAndLimits(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, `
tenants: {default: {max_running: -1}}
profiles: {default: {provider: demo, busy_policy: collect, collect: {quiet: 1m, max: 10s}, limits: {pending: 20000}}}
channels: {one: {platform: webhook, busy_policy: loud, webhook: {secrets: ['env:X']}}}
hooks:
  both: {url: 'https://h', secret: 'env:X', subject: events}
  bare: {url: 'https://h'}
  own: {subject: evt.mine}
  typo: {subject: audit.hermes, events: [run_began], tenants: [nobody]}
  fine: {subject: audit.hermes, events: [run_started], tenants: [default]}
engine: {stall_limit: 4, attempt_limit: 3}
`)
	require.NoError(t, err)
	require.EqualError(t, cfg.Validate(), `tenants.default.max_running: -1 is negative
profiles.default.collect: quiet 1m0s and max 10s: 0 <= quiet <= max is needed
profiles.default.limits.pending: 20000 is not between 1 and 10000
channels.one.busy_policy: "loud" is none of queue, collect, latest, steer, interrupt, reject
engine.stall_limit: 4 and attempt_limit 3: 1 <= stall_limit <= attempt_limit is needed
hooks.bare.secret: is needed: requests are signed with it
hooks.both: either url or subject is needed
hooks.own.subject: "evt" belongs to the engine
hooks.typo.events[0]: "run_began" is not a type of event
hooks.typo.tenants[0]: "nobody" is not in tenants`)
}
