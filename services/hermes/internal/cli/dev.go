package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
	"github.com/hermes-runtime/hermes/services/hermes/internal/chat"
	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
	"github.com/hermes-runtime/hermes/services/hermes/internal/devserver"
	"github.com/hermes-runtime/hermes/services/internal/version"
)

// devFlags are the flags of `hermes dev`.
type devFlags struct {
	config                              string
	nats, redis, postgres, workspaces   string
	apiAddr, ingressAddr, adminAddr     string
	modelURL, model, modelKey, logLevel string
	demo, noChat                        bool
}

func newDev(e *env) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run every service in this process, on embedded servers",
		Long: "Runs ingress, api, router, worker, toolexec and egress in one process, on an embedded NATS, an embedded Redis and a memory\n" +
			"store. Nothing is kept when it ends. --postgres, --redis and --nats (or HERMES_POSTGRES_URL, HERMES_REDIS_URL and\n" +
			"HERMES_NATS_URL) replace each by a real server.\n" +
			"In a terminal it opens a chat; Ctrl-C drains and leaves.",
		Example: "  hermes dev\n  hermes dev --model-url http://127.0.0.1:11434/v1 --model llama3.2\n" +
			"  hermes dev --model-url https://api.openai.com/v1 --model gpt-5-mini --model-key env:OPENAI_API_KEY\n" +
			"  hermes dev --postgres postgres://localhost/hermes --redis redis://localhost:6379/0 --nats nats://localhost:4222",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.dev(cmd.Context(), cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration file (default: $"+config.EnvFile+", else built-in)")
	flags.StringVar(&f.postgres, "postgres", "", "database URL instead of the memory store; migrated at the start")
	flags.StringVar(&f.redis, "redis", "", "Redis URL instead of the embedded one")
	flags.StringVar(&f.nats, "nats", "", "NATS URL instead of the embedded one; needs --postgres")
	flags.StringVar(&f.workspaces, "workspaces", "", "folder for the sessions' files (default: temporary)")
	flags.StringVar(&f.apiAddr, "api-addr", "", "address of the API (default 127.0.0.1:8080)")
	flags.StringVar(&f.ingressAddr, "ingress-addr", "", "address for webhooks (default 127.0.0.1:8081)")
	flags.StringVar(&f.adminAddr, "admin-addr", "", "address of metrics and health (default 127.0.0.1:9090)")
	flags.StringVar(&f.modelURL, "model-url", "", "base URL of an OpenAI-compatible server instead of the demo model")
	flags.StringVar(&f.model, "model", "", "model name at --model-url")
	flags.StringVar(&f.modelKey, "model-key", "", "key for --model-url, as env:NAME or file:PATH")
	flags.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error (default warn)")
	flags.BoolVar(&f.demo, "demo", false, "ask one question that needs a tool, show its path, and end")
	flags.BoolVar(&f.noChat, "no-chat", false, "do not open the chat in a terminal")
	return cmd
}

// devGrace bounds the drain after Ctrl-C.
const devGrace = 10 * time.Second

func (e *env) dev(ctx context.Context, cmd *cobra.Command, f devFlags) (err error) {
	begin := time.Now()
	cfg, options, err := f.resolve(cmd)
	if err != nil {
		return err
	}
	talks := !f.demo && !f.noChat && e.output == "text" && isTerminal(e.in) && isTerminal(e.out)
	logs, logFile, err := e.logs(talks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeEmpty(logFile)) }()
	tel, err := telemetry.New(ctx, cfg.Telemetry, telemetry.Options{Service: "hermes-dev", Version: version.Get().Version, Logs: logs})
	if err != nil {
		return err
	}
	server := devserver.New(cfg, options, tel)
	startCtx, cancel := context.WithTimeout(ctx, devserver.StartTimeout)
	defer cancel()
	if err := server.Start(startCtx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stopDev(ctx, server, tel)) }()

	banner := server.Banner(time.Since(begin))
	banner.LogFile = logFile
	switch {
	case f.demo:
		return devserver.Demo(ctx, server, banner, e.out)
	case talks:
		if _, err := fmt.Fprintf(e.out, "%s\nWrite below. In another terminal: %s\n\n", banner, banner.Next); err != nil {
			return err
		}
		talk := chat.Conversation{Client: client.New(banner.API, ""), Session: defaultSession()}
		return talk.Interactive(ctx, e.in, e.out)
	default:
		if err := e.print(fmt.Sprintf("%s\nNext: %s\nCtrl-C drains and leaves.", banner, banner.Next), banner); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
}

func (e *env) stopDev(ctx context.Context, server *devserver.Server, tel *telemetry.Telemetry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), devGrace) // the drain outlives Ctrl-C
	defer cancel()
	return errors.Join(server.Stop(ctx), tel.Shutdown(ctx))
}

// logs go to standard error, or to a file while the chat owns the terminal.
func (e *env) logs(talks bool) (io.Writer, string, error) {
	if !talks {
		return e.err, "", nil
	}
	file, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("hermes-dev-%d.log", os.Getpid())))
	if err != nil {
		return nil, "", fmt.Errorf("log file: %w", err)
	}
	return file, file.Name(), nil
}

// removeEmpty removes a log file in which nothing was written.
func removeEmpty(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 0 {
		return err
	}
	return os.Remove(path)
}

// resolve applies the flags over file, environment and defaults.
func (f devFlags) resolve(cmd *cobra.Command) (config.Config, devserver.Options, error) {
	options := devserver.Options{
		NATS: cmp.Or(f.nats, config.Env("nats.url")), Redis: cmp.Or(f.redis, config.Env("redis.url")),
		Postgres: cmp.Or(f.postgres, config.Env("postgres.url")), Workspaces: cmp.Or(f.workspaces, config.Env("toolexec.workspaces")),
	}
	if err := options.Validate(); err != nil {
		return config.Config{}, options, fmt.Errorf("%w: %w", errUsage, err)
	}
	cfg, err := config.LoadProcess(f.config)
	if err != nil {
		return config.Config{}, options, err
	}
	set := func(flag string, field *string, value string) {
		if cmd.Flags().Changed(flag) {
			*field = value
		}
	}
	set("api-addr", &cfg.API.Addr, f.apiAddr)
	set("ingress-addr", &cfg.Ingress.Addr, f.ingressAddr)
	set("admin-addr", &cfg.AdminAddr, f.adminAddr)
	cfg.Telemetry.LogFormat, cfg.Telemetry.LogLevel = "text", "warn"
	set("log-level", &cfg.Telemetry.LogLevel, f.logLevel)
	if err := f.useModel(&cfg); err != nil {
		return config.Config{}, options, fmt.Errorf("%w: %w", errUsage, err)
	}
	return cfg, options, errors.Join(cfg.Validate(), cfg.CheckSecrets())
}

// commandLine is the provider that --model-url defines.
const commandLine = "command-line"

func (f devFlags) useModel(cfg *config.Config) error {
	if f.modelURL == "" {
		if f.model != "" || f.modelKey != "" {
			return errors.New("--model and --model-key need --model-url")
		}
		return nil
	}
	if f.model == "" {
		return errors.New("--model-url needs --model")
	}
	key, err := config.NewSecret(f.modelKey)
	if err != nil {
		return fmt.Errorf("--model-key: %w", err)
	}
	cfg.Providers[commandLine] = config.Provider{Kind: "openai", BaseURL: f.modelURL, APIKey: key, Model: f.model}
	profile := cfg.Profiles[cfg.API.Profile]
	profile.Provider, profile.Model = commandLine, f.model
	cfg.Profiles[cfg.API.Profile] = profile
	return nil
}
