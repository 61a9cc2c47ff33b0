// Package process runs one service as a process: configuration, backends, operator endpoints, signals, exit code.
package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/version"
)

// Exit codes of every command.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
)

// App is a service.
type App interface {
	daemon.Component
	// Checks are asked by /readyz.
	Checks() []daemon.Check
}

// Service says how to build one.
type Service struct {
	Name  string
	Needs backends.Needs
	// Build wires the service. Parts that it returns besides the app start before and stop after it.
	Build func(ctx context.Context, cfg config.Config, b backends.Backends) (App, []daemon.Named, error)
}

const startTimeout = 60 * time.Second

// Main runs a service until SIGTERM or SIGINT and returns the exit code. A second signal ends the process at once.
func Main(s Service) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Code(os.Stderr, s.Name, s.run(ctx, os.Args[1:]))
}

// Code prints err, one line per problem, and returns the exit code for it. The code stands even where nobody reads w.
func Code(w io.Writer, name string, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return ExitDone
	}
	for line := range strings.Lines(err.Error()) {
		_, _ = fmt.Fprintf(w, "%s: %s\n", name, strings.TrimRight(line, "\n"))
	}
	switch {
	case errors.Is(err, errUsage):
		return ExitUsage
	case errors.Is(err, backends.ErrUnreachable):
		return ExitUnreachable
	default:
		return ExitFailed
	}
}

var errUsage = errors.New("usage")

func (s Service) run(ctx context.Context, args []string) error {
	cfg, probe, err := s.configure(args)
	if err != nil {
		return err
	}
	if probe {
		return askReady(ctx, cfg.AdminAddr)
	}
	tel, err := telemetry.New(ctx, cfg.Telemetry, telemetry.Options{Service: "hermes-" + s.Name, Version: version.Get().Version})
	if err != nil {
		return err
	}
	b, parts, err := s.build(ctx, cfg, tel)
	if err != nil {
		return err
	}
	defer b.Close()
	tel.Logger.InfoContext(ctx, "starting", "version", version.Get().Version, "admin_addr", cfg.AdminAddr)
	return errors.Join(daemon.Run(ctx, tel.Logger, cfg.Worker.Grace, parts...), shutdown(ctx, tel))
}

// configure reads flags, file and environment; probe says that only the readiness of a running process is asked for.
func (s Service) configure(args []string) (cfg config.Config, probe bool, err error) {
	flags := flag.NewFlagSet(s.Name, flag.ContinueOnError)
	path := flags.String("config", "", "configuration file (default: $"+config.EnvFile+")")
	flags.BoolVar(&probe, "ready", false, "ask the running process whether it is ready, by its exit code, and end")
	if err := flags.Parse(args); err != nil {
		return config.Config{}, false, errors.Join(errUsage, err)
	}
	if cfg, err = config.LoadProcess(*path); err != nil {
		return config.Config{}, false, err
	}
	return cfg, probe, cfg.Validate()
}

// build opens the backends and lists the parts of the process in the order of their start. The operator endpoints come
// first, so that probes see a starting process as live and not ready.
func (s Service) build(ctx context.Context, cfg config.Config, tel *telemetry.Telemetry) (*backends.Opened, []daemon.Named, error) {
	openCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b, err := backends.Open(openCtx, cfg, s.Name, s.Needs, tel)
	if err != nil {
		return nil, nil, err
	}
	app, parts, err := s.Build(ctx, cfg, b.Backends)
	if err != nil {
		b.Close()
		return nil, nil, err
	}
	health := daemon.NewHealth(app.Checks()...)
	admin := daemon.NewHTTPServer(cfg.AdminAddr, daemon.AdminHandler(health, tel.MetricsHandler()), tel.Logger)
	all := append([]daemon.Named{{Name: "admin", Component: admin}}, parts...)
	all = append(all, daemon.Named{Name: s.Name, Component: app}, daemon.Named{Name: "health", Component: readiness{health}})
	return b, all, nil
}

// readiness is the last part to start and the first to stop.
type readiness struct{ health *daemon.Health }

func (r readiness) Start(context.Context) error { r.health.SetReady(true); return nil }
func (r readiness) Stop(context.Context) error  { r.health.SetReady(false); return nil }

const flushTimeout = 5 * time.Second

func shutdown(ctx context.Context, tel *telemetry.Telemetry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout) // the signal has ended ctx
	defer cancel()
	return tel.Shutdown(ctx)
}
