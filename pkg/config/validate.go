package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sort"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// longestRedelivery is how long a platform keeps sending one event again: WhatsApp, up to 7 days, plus a margin.
const longestRedelivery = 10 * 24 * 60 * 60 // seconds

// problems collects one error per key.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// Validate joins every problem, one per line, each beginning with its key. It reads no secret: a service sees only its
// own, see CheckSecrets.
func (c Config) Validate() error {
	var p problems
	c.validateTenants(&p)
	c.validateProviders(&p)
	c.validateProfiles(&p)
	c.validateChannels(&p)
	c.validateAPI(&p)
	c.validateServers(&p)
	c.validateWorker(&p)
	c.validateEngine(&p)
	c.validateHooks(&p)
	return errors.Join(p...)
}

// CheckSecrets reads every secret that the configuration refers to and joins the problems, one per line. Services read
// only those that they need; `hermes config check` reads all.
func (c Config) CheckSecrets() error {
	var p problems
	for _, name := range sortedKeys(c.Providers) {
		checkSecret(&p, "providers."+name+".api_key", c.Providers[name].APIKey)
	}
	for _, name := range sortedKeys(c.Channels) {
		key, w := "channels."+name+".webhook", c.Channels[name].Webhook
		for i, s := range w.Secrets {
			checkSecret(&p, fmt.Sprintf("%s.secrets[%d]", key, i), s)
		}
		checkSecret(&p, key+".reply_secret", w.ReplySecret)
		t := c.Channels[name].Telegram
		checkSecret(&p, "channels."+name+".telegram.token", t.Token)
		checkSecret(&p, "channels."+name+".telegram.webhook_secret", t.WebhookSecret)
	}
	for _, name := range sortedKeys(c.API.Keys) {
		checkSecret(&p, "api.keys."+name+".secret", c.API.Keys[name].Secret)
	}
	for _, name := range sortedKeys(c.Hooks) {
		checkSecret(&p, "hooks."+name+".secret", c.Hooks[name].Secret)
	}
	checkSecret(&p, "redis.password", c.Redis.Password)
	checkSecret(&p, "postgres.password", c.Postgres.Password)
	return errors.Join(p...)
}

func (c Config) validateTenants(p *problems) {
	if len(c.Tenants) == 0 {
		p.add("tenants", "at least one is needed")
	}
	for _, name := range sortedKeys(c.Tenants) {
		if err := bus.CheckToken("tenants", name); err != nil {
			*p = append(*p, err)
		}
		if n := c.Tenants[name].MaxRunning; n < 0 {
			p.add("tenants."+name+".max_running", "%d is negative", n)
		}
	}
}

func (c Config) validateProviders(p *problems) {
	for _, name := range sortedKeys(c.Providers) {
		key, v := "providers."+name, c.Providers[name]
		switch v.Kind {
		case "demo":
		case "openai":
			if v.BaseURL != "" {
				checkURL(p, key+".base_url", v.BaseURL, "http", "https")
			}
		default:
			p.add(key+".kind", "%q is neither demo nor openai", v.Kind)
		}
		if v.Timeout < 0 {
			p.add(key+".timeout", "%s is negative", v.Timeout)
		}
	}
}

func (c Config) validateProfiles(p *problems) {
	if len(c.Profiles) == 0 {
		p.add("profiles", "at least one is needed")
	}
	for _, name := range sortedKeys(c.Profiles) {
		key, v := "profiles."+name, c.Profiles[name].WithDefaults()
		provider, ok := c.Providers[v.Provider]
		switch {
		case !ok:
			p.add(key+".provider", "%q is not in providers", v.Provider)
		case provider.Kind == "openai" && v.Model == "" && provider.Model == "":
			p.add(key+".model", "provider %q has no model of its own, name one", v.Provider)
		}
		if err := event.CheckPolicy(key+".busy_policy", v.BusyPolicy); err != nil {
			*p = append(*p, err)
		}
		if v.Collect.Quiet < 0 || v.Collect.Max < v.Collect.Quiet {
			p.add(key+".collect", "quiet %s and max %s: 0 <= quiet <= max is needed", v.Collect.Quiet, v.Collect.Max)
		}
		if err := bus.CheckToken(key+".pool", v.Pool); err != nil {
			*p = append(*p, err)
		}
		checkLimits(p, key+".limits", v.Limits)
	}
}

func checkLimits(p *problems, key string, l Limits) {
	if l.Steps < 1 || l.Steps > 1000 {
		p.add(key+".steps", "%d is not between 1 and 1000", l.Steps)
	}
	if l.Pending < 1 || l.Pending > 10_000 {
		p.add(key+".pending", "%d is not between 1 and 10000", l.Pending)
	}
	if l.Wall <= 0 {
		p.add(key+".wall", "%s is not positive", l.Wall)
	}
	if l.History < 1 || l.History > 10_000 {
		p.add(key+".history", "%d is not between 1 and 10000", l.History)
	}
	if l.OutputTokens < 0 {
		p.add(key+".output_tokens", "%d is negative", l.OutputTokens)
	}
}

func (c Config) validateAPI(p *problems) {
	checkAddr(p, "api.addr", c.API.Addr)
	if !has(c.Profiles, c.API.Profile) {
		p.add("api.profile", "%q is not in profiles", c.API.Profile)
	}
	for i, name := range c.API.Models {
		if !has(c.Profiles, name) {
			p.add(fmt.Sprintf("api.models[%d]", i), "%q is not in profiles", name)
		}
	}
	if c.API.RequestsPerMinute < 0 {
		p.add("api.requests_per_minute", "%d is negative", c.API.RequestsPerMinute)
	}
	if len(c.API.Keys) == 0 && !Loopback(c.API.Addr) {
		p.add("api.keys", "at least one is needed unless api.addr %s is a loopback address", c.API.Addr)
	}
	for _, name := range sortedKeys(c.API.Keys) {
		key, v := "api.keys."+name, c.API.Keys[name]
		if !v.Secret.Set() {
			p.add(key+".secret", "must not be empty")
		}
		c.checkOwner(p, key, v.Tenant, c.API.Profile)
		for i, role := range v.Roles {
			checkWord(p, fmt.Sprintf("%s.roles[%d]", key, i), role, "user", "reader", "admin")
		}
		if v.RequestsPerMinute < 0 {
			p.add(key+".requests_per_minute", "%d is negative", v.RequestsPerMinute)
		}
		if v.User == "" {
			p.add(key+".user", "must not be empty")
		}
	}
}

func (c Config) validateServers(p *problems) {
	checkURL(p, "nats.url", c.NATS.URL, "nats", "tls", "ws", "wss")
	checkURL(p, "redis.url", c.Redis.URL, "redis", "rediss")
	checkURL(p, "postgres.url", c.Postgres.URL, "postgres", "postgresql")
	for _, a := range []struct{ key, addr string }{
		{"ingress.addr", c.Ingress.Addr}, {"toolexec.addr", c.Toolexec.Addr}, {"admin_addr", c.AdminAddr},
	} {
		checkAddr(p, a.key, a.addr)
	}
	s := c.NATS.Streams
	if s.Streams < 1 || session.Partitions%s.Streams != 0 {
		p.add("nats.streams.streams", "%d does not divide %d", s.Streams, session.Partitions)
	}
	if s.Replicas < 1 || s.Replicas > 5 {
		p.add("nats.streams.replicas", "%d is not between 1 and 5", s.Replicas)
	}
	if c.Postgres.Connections < 2 || c.Postgres.Connections > 64 {
		p.add("postgres.connections", "%d is not between 2 and 64", c.Postgres.Connections)
	}
}

func (c Config) validateWorker(p *problems) {
	if c.Worker.Slots < 1 {
		p.add("worker.slots", "%d is not positive", c.Worker.Slots)
	}
	for _, pool := range c.Worker.Pools {
		if err := bus.CheckToken("worker.pools", pool); err != nil {
			*p = append(*p, err)
		}
	}
	if c.Worker.Grace.Seconds() < 30 {
		p.add("worker.grace", "%s is under 30s", c.Worker.Grace)
	}
	if c.Toolexec.Timeout <= 0 {
		p.add("toolexec.timeout", "%s is not positive", c.Toolexec.Timeout)
	}
	if c.Toolexec.OutputBytes < 1024 {
		p.add("toolexec.output_bytes", "%d is under 1024", c.Toolexec.OutputBytes)
	}
	if c.Toolexec.Workspaces == "" {
		p.add("toolexec.workspaces", "must not be empty")
	}
	if c.Telemetry.SampleRatio < 0 || c.Telemetry.SampleRatio > 1 {
		p.add("telemetry.sample_ratio", "%v is not between 0 and 1", c.Telemetry.SampleRatio)
	}
}

// outboxClaim is how long a row is claimed for, and sendStart how late in it a send may begin.
const (
	outboxClaimSeconds = 60
	sendStartSeconds   = 40
)

// validateEngine checks the relations that keep messages from being lost or doubled, see docs/architecture.md.
func (c Config) validateEngine(p *problems) {
	if c.Engine.InboxRetention.Seconds() <= c.NATS.Streams.IngestMaxAge.Seconds()+longestRedelivery {
		p.add("engine.inbox_retention", "%s must exceed nats.streams.ingest_max_age %s plus the longest platform redelivery (240h)",
			c.Engine.InboxRetention, c.NATS.Streams.IngestMaxAge)
	}
	if s := c.Egress.SendTimeout.Seconds(); s <= 0 || sendStartSeconds+s > outboxClaimSeconds {
		p.add("egress.send_timeout", "%s must be positive and at most %ds, so that a send ends within its claim",
			c.Egress.SendTimeout, outboxClaimSeconds-sendStartSeconds)
	}
	if lease.TTL < 2*lease.Renewal+lease.Margin {
		p.add("engine", "lease TTL %s is under two renewals and the margin", lease.TTL)
	}
	if c.Engine.MaxBodyBytes < 1024 || c.Engine.MaxBodyBytes > 20<<20 {
		p.add("engine.max_body_bytes", "%d is not between 1024 and %d", c.Engine.MaxBodyBytes, 20<<20)
	}
	if c.Engine.StallLimit < 1 || c.Engine.AttemptLimit < c.Engine.StallLimit {
		p.add("engine.stall_limit", "%d and attempt_limit %d: 1 <= stall_limit <= attempt_limit is needed",
			c.Engine.StallLimit, c.Engine.AttemptLimit)
	}
}

func (c Config) validateHooks(p *problems) {
	for _, name := range sortedKeys(c.Hooks) {
		key, h := "hooks."+name, c.Hooks[name].WithDefaults()
		if err := bus.CheckToken("hooks", name); err != nil {
			*p = append(*p, err)
		}
		switch {
		case (h.URL == "") == (h.Subject == ""):
			p.add(key, "either url or subject is needed")
		case h.URL != "":
			checkURL(p, key+".url", h.URL, "http", "https")
			if !h.Secret.Set() {
				p.add(key+".secret", "is needed: requests are signed with it")
			}
		default:
			checkSubject(p, key+".subject", h.Subject)
		}
		if h.Timeout <= 0 || h.Retries < 0 {
			p.add(key, "timeout %s and retries %d must not be negative", h.Timeout, h.Retries)
		}
		for i, t := range h.Events {
			if !slices.Contains(event.Types(), event.Type(t)) {
				p.add(fmt.Sprintf("%s.events[%d]", key, i), "%q is not a type of event", t)
			}
		}
		for i, t := range h.Tenants {
			if !has(c.Tenants, t) {
				p.add(fmt.Sprintf("%s.tenants[%d]", key, i), "%q is not in tenants", t)
			}
		}
	}
}

// checkSubject refuses wildcards, and the subjects of the engine itself.
func checkSubject(p *problems, key, subject string) {
	for i, token := range strings.Split(subject, ".") {
		if err := bus.CheckToken(key, strings.ToLower(token)); err != nil {
			*p = append(*p, err)
			return
		}
		if i == 0 && slices.Contains([]string{"ing", "run", "out", "evt", "dlq", "ctl", "dlt", "snap", "prev"}, token) {
			p.add(key, "%q belongs to the engine", token)
		}
	}
}

// TenantName is the channel's tenant or the default.
func (c Channel) TenantName() string { return cmp.Or(c.Tenant, DefaultTenant) }

// ProfileName is the channel's profile or the default.
func (c Channel) ProfileName() string { return cmp.Or(c.Profile, DefaultProfile) }

// TenantName is the key's tenant or the default.
func (k APIKey) TenantName() string { return cmp.Or(k.Tenant, DefaultTenant) }

// Loopback reports whether addr (host:port) can be reached from this machine only.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func checkAddr(p *problems, key, addr string) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		p.add(key, "%q is not host:port", addr)
	}
}

func checkURL(p *problems, key, raw string, schemes ...string) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		p.add(key, "is not a URL with a host") // the URL may hold a password: it is not repeated
		return
	}
	for _, s := range schemes {
		if u.Scheme == s {
			return
		}
	}
	p.add(key, "scheme %q is not one of %s", u.Scheme, strings.Join(schemes, ", "))
}

func checkSecret(p *problems, key string, s Secret) {
	if _, err := s.Value(); err != nil {
		p.add(key, "%v", err)
	}
}

func has[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
