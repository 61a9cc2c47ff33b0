package devserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/config"
)

// Banner is what `hermes dev` says when it is ready.
type Banner struct {
	Addresses
	// Model and Provider of the profile that answers.
	Model    string `json:"model"`
	Provider string `json:"provider"`
	Demo     bool   `json:"demo"`
	// Store, Broker and Leases are "memory" or "embedded", or the kind of the real server.
	Store  string `json:"store"`
	Broker string `json:"broker"`
	Leases string `json:"leases"`
	// Kept is false while nothing outlives the process.
	Kept    bool          `json:"kept"`
	StartIn time.Duration `json:"-"`
	StartMS int64         `json:"start_ms"`
	// Channels are names with their platform, sorted.
	Channels []string `json:"channels"`
	LogFile  string   `json:"log_file,omitempty"`
	Next     string   `json:"next"`
}

// Banner describes the running server.
func (s *Server) Banner(startIn time.Duration) Banner {
	profile := s.cfg.Profiles[s.cfg.API.Profile]
	provider := s.cfg.Providers[profile.Provider]
	b := Banner{
		Addresses: s.Addresses(),
		Model:     modelName(profile, provider), Provider: profile.Provider, Demo: provider.Kind == "demo",
		Store: pick(s.options.Postgres, "PostgreSQL", "memory"), Broker: pick(s.options.NATS, "NATS", "embedded NATS"),
		Leases: pick(s.options.Redis, "Redis", "embedded Redis"), Kept: s.options.Postgres != "",
		StartIn: startIn, StartMS: startIn.Milliseconds(), Next: "hermes chat",
	}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Channels)) {
		b.Channels = append(b.Channels, name+" ("+s.cfg.Channels[name].Platform+")")
	}
	return b
}

func pick(url, realServer, embeddedServer string) string {
	if url == "" {
		return embeddedServer
	}
	return realServer
}

func modelName(p config.Profile, provider config.Provider) string {
	switch {
	case p.Model != "":
		return p.Model
	case provider.Model != "":
		return provider.Model
	default:
		return "demo"
	}
}

// String is the text form, at most 80 columns wide.
func (b Banner) String() string {
	var s strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&s, "  %-9s %s\n", label, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&s, "Hermes is ready (%d ms): every service in this process.\n\n", b.StartMS)
	line("api", "%s", b.API)
	line("webhooks", "%s/v1/hooks/<channel>", b.Hooks)
	if len(b.Channels) > 0 {
		line("channels", "%s", strings.Join(b.Channels, ", "))
	}
	line("metrics", "%s/metrics, /readyz, /livez", b.Admin)
	line("model", "%s", b.modelText())
	line("embedded", "%s", b.serversText())
	if b.LogFile != "" {
		line("logs", "%s", b.LogFile)
	}
	return s.String()
}

func (b Banner) modelText() string {
	if b.Demo {
		return "demo, built in: offline and simple. For a real one: hermes dev --help"
	}
	return b.Model + " at provider " + b.Provider
}

func (b Banner) serversText() string {
	kept := "nothing is kept when it ends"
	if b.Kept {
		kept = "sessions are kept in PostgreSQL"
	}
	return fmt.Sprintf("%s, %s, %s store; %s", b.Broker, b.Leases, b.Store, kept)
}
