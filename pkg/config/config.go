// Package config reads the one YAML file of Hermes and the HERMES_ environment over it.
//
// Keys are strict: an unknown key fails. Secrets are references (env:NAME, file:PATH), never values, and print as the
// reference. [Config.Validate] joins every problem, one per line, each naming its key.
package config

import (
	"cmp"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// Config is the whole configuration; all services read the same file and use their part.
type Config struct {
	Tenants   map[string]Tenant   `koanf:"tenants"`
	Profiles  map[string]Profile  `koanf:"profiles"`
	Providers map[string]Provider `koanf:"providers"`
	// Channels are platform accounts by name.
	Channels map[string]Channel `koanf:"channels"`
	API      API                `koanf:"api"`
	NATS     NATS               `koanf:"nats"`
	Redis    Redis              `koanf:"redis"`
	Postgres Postgres           `koanf:"postgres"`
	Ingress  Ingress            `koanf:"ingress"`
	Router   Router             `koanf:"router"`
	Worker   Worker             `koanf:"worker"`
	Toolexec Toolexec           `koanf:"toolexec"`
	Egress   Egress             `koanf:"egress"`
	Engine   Engine             `koanf:"engine"`
	// AdminAddr serves /metrics, /livez and /readyz of a service.
	AdminAddr string    `koanf:"admin_addr"`
	Telemetry Telemetry `koanf:"telemetry"`
	// Hooks by name observe lifecycle events.
	Hooks map[string]Hook `koanf:"hooks"`
}

// Tenant separates the data of one customer.
type Tenant struct {
	Title string `koanf:"title"`
	// MaxRunning is how many runs of the tenant may be going on at once, 0 = no bound. More wait; it is kept within a few
	// seconds, since routers count on their own.
	MaxRunning int `koanf:"max_running"`
}

// Hook receives lifecycle events, at least once and in order per conversation, without ever slowing a run. It is either
// an HTTP hook (URL) or a subject (Subject).
type Hook struct {
	// URL receives a POST per event, signed with Secret by Standard Webhooks.
	URL    string `koanf:"url"`
	Secret Secret `koanf:"secret"`
	// AllowPrivate lets URL point to private, loopback or link-local addresses.
	AllowPrivate bool `koanf:"allow_private"`
	// Subject is a NATS subject under which events are published, followed by "." and their type.
	Subject string `koanf:"subject"`
	// Events are the types that it wants; empty: all.
	Events []string `koanf:"events"`
	// Tenants restricts it to some tenants; empty: all.
	Tenants []string `koanf:"tenants"`
	// Timeout of one delivery, Retries how often a failed one is repeated with growing pauses before the event is given up.
	Timeout time.Duration `koanf:"timeout"`
	Retries int           `koanf:"retries"`
}

// WithDefaults fills what the operator left out.
func (h Hook) WithDefaults() Hook {
	h.Timeout = cmp.Or(h.Timeout, 5*time.Second)
	h.Retries = cmp.Or(h.Retries, 5)
	return h
}

// Profile is an agent: model, prompt, tools and how its sessions behave.
type Profile struct {
	// Provider names an entry of providers, Model the provider's model ("" = the provider's default).
	Provider string `koanf:"provider"`
	Model    string `koanf:"model"`
	Prompt   string `koanf:"prompt"`
	// Tools lists what the agent may call; ["*"] is everything, [] nothing.
	Tools []string `koanf:"tools"`
	// BusyPolicy says what a message does to a busy conversation: queue (the default), collect, latest, steer, interrupt or
	// reject.
	BusyPolicy event.Policy   `koanf:"busy_policy"`
	Collect    CollectOptions `koanf:"collect"`
	Session    SessionOptions `koanf:"session"`
	// Pool is the worker class.
	Pool string `koanf:"pool"`
	// ShareSessions allows two accounts of one platform on this profile, whose chats then share keys.
	ShareSessions bool   `koanf:"share_sessions"`
	Limits        Limits `koanf:"limits"`
}

// SessionOptions choose how much of a source goes into the session key.
type SessionOptions struct {
	GroupSessionsPerUser  *bool `koanf:"group_sessions_per_user"`
	ThreadSessionsPerUser bool  `koanf:"thread_sessions_per_user"`
}

// CollectOptions are the quiet window of the policy collect.
type CollectOptions struct {
	// Quiet is how long nothing may come before the turn begins, Max the longest time since the first message.
	Quiet time.Duration `koanf:"quiet"`
	Max   time.Duration `koanf:"max"`
}

// Limits of one run, and of what may wait for one.
type Limits struct {
	// Pending is how many messages of a conversation may wait; more are refused.
	Pending int `koanf:"pending"`
	// Steps is the number of model calls, after which one more sums up without tools.
	Steps int `koanf:"steps"`
	// Wall is the longest time of a run.
	Wall time.Duration `koanf:"wall"`
	// History is how many earlier messages a run sees.
	History int `koanf:"history"`
	// OutputTokens bounds one model call, 0 = the provider's default.
	OutputTokens int `koanf:"output_tokens"`
}

// Provider is a model API.
type Provider struct {
	// Kind is demo or openai (any OpenAI-compatible server).
	Kind    string        `koanf:"kind"`
	BaseURL string        `koanf:"base_url"`
	APIKey  Secret        `koanf:"api_key"`
	Model   string        `koanf:"model"`
	Timeout time.Duration `koanf:"timeout"`
}

// Channel is one account of a platform, answered by one profile.
type Channel struct {
	// Platform is webhook or telegram; the section of that name below says the rest.
	Platform string `koanf:"platform"`
	Tenant   string `koanf:"tenant"`
	Profile  string `koanf:"profile"`
	// BusyPolicy overrides the profile's.
	BusyPolicy event.Policy `koanf:"busy_policy"`
	Webhook    Webhook      `koanf:"webhook"`
	Telegram   Telegram     `koanf:"telegram"`
}

// Telegram is a bot.
type Telegram struct {
	// Token is what BotFather gave: "<bot id>:<key>".
	Token Secret `koanf:"token"`
	// Mode says how updates come: poll (the default, needs no public address) or webhook.
	Mode string `koanf:"mode"`
	// WebhookSecret is the secret_token of webhook mode, 1 to 256 of A-Z a-z 0-9 _ -. Updates are received at
	// POST /v1/telegram/<channel name>.
	WebhookSecret Secret `koanf:"webhook_secret"`
	// WebhookURL is the public address of that path; if it is set, ingress registers it with Telegram at start-up.
	WebhookURL string `koanf:"webhook_url"`
	// APIURL is the Bot API server, https://api.telegram.org by default.
	APIURL string `koanf:"api_url"`
	// AllowUsers and AllowChats list the ids that may talk to the bot; "*" is everyone. Empty: nobody.
	AllowUsers []string `koanf:"allow_users"`
	AllowChats []string `koanf:"allow_chats"`
	// Groups says what addresses the bot in a group: mention (the default: a mention, a reply to the bot or a command) or
	// always (every message).
	Groups string `koanf:"groups"`
	// Streaming shows answers while they are written: auto (the default: drafts in private chats, edits in groups) or off.
	Streaming string `koanf:"streaming"`
}

// Modes of Telegram, and its default server.
const (
	TelegramPoll    = "poll"
	TelegramWebhook = "webhook"
	TelegramAPIURL  = "https://api.telegram.org"
)

// WithDefaults fills what the operator left out.
func (t Telegram) WithDefaults() Telegram {
	t.Mode = cmp.Or(t.Mode, TelegramPoll)
	t.APIURL = strings.TrimSuffix(cmp.Or(t.APIURL, TelegramAPIURL), "/")
	t.Groups = cmp.Or(t.Groups, "mention")
	t.Streaming = cmp.Or(t.Streaming, "auto")
	return t
}

// Webhook is a generic webhook: POST /v1/hooks/<channel name> in, a signed POST to ReplyURL out.
type Webhook struct {
	// Secrets verify what comes in, by Standard Webhooks; several during rotation. Values are "whsec_" + base64 or plain.
	Secrets []Secret `koanf:"secrets"`
	// Unsigned accepts requests without signature; only where the service listens on a loopback address.
	Unsigned bool `koanf:"unsigned"`
	// ReplyURL receives answers, signed with ReplySecret. Empty: answers are read through the API.
	ReplyURL    string `koanf:"reply_url"`
	ReplySecret Secret `koanf:"reply_secret"`
	// AllowPrivate lets ReplyURL point to private, loopback or link-local addresses.
	AllowPrivate bool `koanf:"allow_private"`
	// JSON pointers into the body.
	TextPointer         string `koanf:"text_pointer"`
	ConversationPointer string `koanf:"conversation_pointer"`
	UserPointer         string `koanf:"user_pointer"`
	// IDPointer names the event id; default: the webhook-id header, then Idempotency-Key, then a hash of the body.
	IDPointer string `koanf:"id_pointer"`
	// PolicyPointer names the busy policy of the message; what is there must be one.
	PolicyPointer string `koanf:"policy_pointer"`
}

// API is the HTTP API for programs and people.
type API struct {
	Addr string `koanf:"addr"`
	// Profile answers API messages.
	Profile string `koanf:"profile"`
	// Models are the profiles that GET /v1/models lists and chat completions may name; empty: all of them.
	Models []string `koanf:"models"`
	// RequestsPerMinute bounds each key, or each user where there are no keys; 0: no bound.
	RequestsPerMinute int `koanf:"requests_per_minute"`
	// Keys by name. None are needed while Addr is a loopback address.
	Keys map[string]APIKey `koanf:"keys"`
}

// APIKey is a bearer key and who it stands for.
type APIKey struct {
	Secret Secret `koanf:"secret"`
	Tenant string `koanf:"tenant"`
	User   string `koanf:"user"`
	// Roles are user (the default: talk to agents and read what they say), reader (read only) and admin.
	Roles []string `koanf:"roles"`
	// RequestsPerMinute replaces the bound of api.
	RequestsPerMinute int `koanf:"requests_per_minute"`
}

// NATS is the broker.
type NATS struct {
	URL string `koanf:"url"`
	// Credentials is a NATS credentials file (JWT and seed).
	Credentials string     `koanf:"credentials"`
	Streams     bus.Config `koanf:"streams"`
}

// Redis holds leases.
type Redis struct {
	URL      string `koanf:"url"`
	Password Secret `koanf:"password"`
}

// Postgres is the store; without a URL services use the store of the process they run in (hermes dev only).
type Postgres struct {
	URL      string `koanf:"url"`
	Password Secret `koanf:"password"`
	// Connections per pool; there are two pools, with and without synchronous commit.
	Connections int `koanf:"connections"`
}

// Ingress is the HTTP edge of platforms.
type Ingress struct {
	Addr string `koanf:"addr"`
}

// Router admits and dispatches.
type Router struct {
	// ID names the router; default host name and a random suffix.
	ID string `koanf:"id"`
}

// Worker runs turns.
type Worker struct {
	ID    string   `koanf:"id"`
	Pools []string `koanf:"pools"`
	// Slots is how many runs a worker holds at once.
	Slots int `koanf:"slots"`
	// Grace is the time from SIGTERM to exit.
	Grace time.Duration `koanf:"grace"`
	// ToolexecAddr is the gRPC address of toolexec.
	ToolexecAddr string `koanf:"toolexec_addr"`
}

// Toolexec runs tools.
type Toolexec struct {
	Addr string `koanf:"addr"`
	// Workspaces is the folder that holds one folder per session.
	Workspaces string `koanf:"workspaces"`
	// AllowHosts are the hosts that http_request may reach: "example.com", "*.example.com", "127.0.0.1:8080"; ["*"] allows
	// every public host. Empty: none.
	AllowHosts []string `koanf:"allow_hosts"`
	// Timeout bounds one call, OutputBytes its observation.
	Timeout     time.Duration `koanf:"timeout"`
	OutputBytes int           `koanf:"output_bytes"`
}

// Egress delivers.
type Egress struct {
	ID          string        `koanf:"id"`
	SendTimeout time.Duration `koanf:"send_timeout"`
}

// Engine holds the relations that config check verifies.
type Engine struct {
	// InboxRetention must exceed nats.streams.ingest_max_age and the longest redelivery of a platform.
	InboxRetention time.Duration `koanf:"inbox_retention"`
	// MaxBodyBytes bounds a request body at the doors.
	MaxBodyBytes int64 `koanf:"max_body_bytes"`
	// StallLimit is how many workers in a row one tool call may cost before its run is given up, AttemptLimit how many a
	// run may cost.
	StallLimit   int `koanf:"stall_limit"`
	AttemptLimit int `koanf:"attempt_limit"`
}

// Telemetry goes to an OpenTelemetry collector.
type Telemetry struct {
	// OTLPEndpoint is host:port of a collector's gRPC port; empty: traces are not exported.
	OTLPEndpoint string `koanf:"otlp_endpoint"`
	OTLPInsecure bool   `koanf:"otlp_insecure"`
	// SampleRatio of new traces, 0 to 1.
	SampleRatio float64 `koanf:"sample_ratio"`
	// Content adds message text to events and spans.
	Content bool `koanf:"content"`
	// LogFormat is json or text, LogLevel debug, info, warn or error.
	LogFormat string `koanf:"log_format"`
	LogLevel  string `koanf:"log_level"`
}

// Default values of names.
const (
	DefaultTenant  = "default"
	DefaultProfile = "default"
	DefaultPool    = "default"
)

// Default returns a configuration that runs the demo model on loopback addresses.
func Default() Config {
	return Config{
		Tenants:   map[string]Tenant{DefaultTenant: {}},
		Profiles:  map[string]Profile{DefaultProfile: {Provider: "demo", Tools: []string{"*"}}},
		Providers: map[string]Provider{"demo": {Kind: "demo"}},
		API:       API{Addr: "127.0.0.1:8080", Profile: DefaultProfile, RequestsPerMinute: 600},
		NATS:      NATS{URL: "nats://127.0.0.1:4222", Streams: bus.DefaultConfig()},
		Redis:     Redis{URL: "redis://127.0.0.1:6379/0"},
		Postgres:  Postgres{URL: "postgres://hermes@127.0.0.1:5432/hermes", Connections: 8},
		Ingress:   Ingress{Addr: "127.0.0.1:8081"},
		Worker: Worker{
			Pools: []string{DefaultPool}, Slots: 256, Grace: 150 * time.Second, ToolexecAddr: "127.0.0.1:8082",
		},
		Toolexec: Toolexec{
			Addr: "127.0.0.1:8082", Workspaces: "workspaces", Timeout: 30 * time.Second, OutputBytes: 64 << 10,
		},
		Egress:    Egress{SendTimeout: 15 * time.Second},
		Engine:    Engine{InboxRetention: 30 * 24 * time.Hour, MaxBodyBytes: 20 << 20, StallLimit: 3, AttemptLimit: 10},
		AdminAddr: "127.0.0.1:9090",
		Telemetry: Telemetry{SampleRatio: 1, LogFormat: "json", LogLevel: "info"},
	}
}

// Defaults of a profile's unset fields.
const (
	DefaultSteps   = 50
	DefaultWall    = 30 * time.Minute
	DefaultHistory = 100
	DefaultPending = 200

	DefaultCollectQuiet = 3 * time.Second
	DefaultCollectMax   = 30 * time.Second
)

// WithDefaults fills what the operator left out.
func (p Profile) WithDefaults() Profile {
	if p.BusyPolicy == "" {
		p.BusyPolicy = event.PolicyQueue
	}
	if p.Pool == "" {
		p.Pool = DefaultPool
	}
	if p.Limits.Steps == 0 {
		p.Limits.Steps = DefaultSteps
	}
	if p.Limits.Wall == 0 {
		p.Limits.Wall = DefaultWall
	}
	if p.Limits.History == 0 {
		p.Limits.History = DefaultHistory
	}
	p.Limits.Pending = cmp.Or(p.Limits.Pending, DefaultPending)
	p.Collect.Quiet = cmp.Or(p.Collect.Quiet, DefaultCollectQuiet)
	p.Collect.Max = cmp.Or(p.Collect.Max, DefaultCollectMax)
	return p
}

// KeyOptions returns the session key options of a profile.
func (p Profile) KeyOptions(name string) session.Options {
	opt := session.DefaultOptions()
	opt.Profile = name
	if p.Session.GroupSessionsPerUser != nil {
		opt.GroupSessionsPerUser = *p.Session.GroupSessionsPerUser
	}
	opt.ThreadSessionsPerUser = p.Session.ThreadSessionsPerUser
	return opt
}
