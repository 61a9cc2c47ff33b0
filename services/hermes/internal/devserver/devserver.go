// Package devserver is `hermes dev`: the app of every service in one process, on embedded servers unless real ones are
// named. It is a composition, never a second implementation.
package devserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus/embedded"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/ratelimit/redislimit"
	"github.com/hermes-runtime/hermes/pkg/rpc"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
	"github.com/hermes-runtime/hermes/pkg/tool/toolrpc"
	api "github.com/hermes-runtime/hermes/services/api/app"
	egress "github.com/hermes-runtime/hermes/services/egress/app"
	ingress "github.com/hermes-runtime/hermes/services/ingress/app"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	router "github.com/hermes-runtime/hermes/services/router/app"
	toolexec "github.com/hermes-runtime/hermes/services/toolexec/app"
	worker "github.com/hermes-runtime/hermes/services/worker/app"
)

// Options choose real servers over embedded ones.
type Options struct {
	// NATS, Redis and Postgres are URLs; "" embeds the server, or keeps everything in memory.
	NATS, Redis, Postgres string
	// Workspaces keeps the files of sessions; "" is a temporary folder.
	Workspaces string
}

// Validate refuses combinations that would answer old messages again.
func (o Options) Validate() error {
	if o.NATS != "" && o.Postgres == "" {
		return errors.New("--nats needs --postgres: a real NATS keeps messages that the memory store forgets, and a restart would answer them again")
	}
	return nil
}

// Server is the runtime in one process.
type Server struct {
	cfg     config.Config
	options Options
	tel     *telemetry.Telemetry

	backends.Backends
	group   *daemon.Group
	api     *api.App
	ingress *ingress.App
	admin   *daemon.HTTPServer
}

// New returns a server that is not started.
func New(cfg config.Config, options Options, tel *telemetry.Telemetry) *Server {
	return &Server{
		cfg: cfg, options: options, tel: tel,
		Backends: backends.Backends{Logger: tel.Logger, Traces: tel.Traces, Meters: tel.Meters},
		group:    &daemon.Group{Logger: tel.Logger},
	}
}

// Start starts servers and services in order and returns when messages are accepted and answered.
func (s *Server) Start(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return errors.Join(err, s.Stop(ctx))
	}
	return nil
}

// Stop drains the services within ctx and then closes the servers.
func (s *Server) Stop(ctx context.Context) error { return s.group.Stop(ctx) }

func (s *Server) start(ctx context.Context) error {
	for _, open := range []func(context.Context) error{s.openWorkspaces, s.openStore, s.openLeases, s.openBus} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	return s.startServices(ctx)
}

// own lets the group close what has been opened.
func (s *Server) own(ctx context.Context, name string, closer func() error) error {
	return s.group.Start(ctx, daemon.Named{Name: name, Component: daemon.Closer(closer)})
}

func (s *Server) openWorkspaces(ctx context.Context) error {
	if s.options.Workspaces != "" {
		dir, err := filepath.Abs(s.options.Workspaces)
		s.cfg.Toolexec.Workspaces = dir
		return err
	}
	dir, err := os.MkdirTemp("", "hermes-workspaces-")
	if err != nil {
		return fmt.Errorf("workspaces: %w", err)
	}
	s.cfg.Toolexec.Workspaces = dir
	return s.own(ctx, "workspaces", func() error { return os.RemoveAll(dir) })
}

func (s *Server) openStore(ctx context.Context) error {
	if s.options.Postgres == "" {
		s.Store = memstore.New()
		return nil
	}
	password, err := s.cfg.Postgres.Password.Value()
	if err != nil {
		return fmt.Errorf("postgres.password: %w", err)
	}
	cfg := pgstore.Config{URL: s.options.Postgres, Password: password, Connections: s.cfg.Postgres.Connections}
	if err := pgstore.Migrate(ctx, cfg); err != nil {
		return fmt.Errorf("--postgres: %w: %w", backends.ErrUnreachable, err)
	}
	store, err := pgstore.Open(ctx, cfg)
	if err != nil {
		return fmt.Errorf("--postgres: %w: %w", backends.ErrUnreachable, err)
	}
	s.Store = store
	return s.own(ctx, "postgres", func() error { store.Close(); return nil })
}

func (s *Server) openLeases(ctx context.Context) error {
	password, err := s.cfg.Redis.Password.Value()
	if err != nil {
		return fmt.Errorf("redis.password: %w", err)
	}
	url := s.options.Redis
	if url == "" {
		memory, err := startMemoryRedis(ctx)
		if err != nil {
			return err
		}
		if err := s.own(ctx, "embedded redis", memory.close); err != nil {
			return err
		}
		url = memory.url()
	}
	leases, err := redislease.Open(ctx, redislease.Config{URL: url, Password: password})
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	s.Leases = leases
	if err := s.openLimits(ctx, redislimit.Config{URL: url, Password: password}); err != nil {
		return err
	}
	if err := s.own(ctx, "redis", leases.Close); err != nil || s.options.Redis == "" {
		return err
	}
	return s.checkRedis(ctx)
}

// openLimits shares rates through the same Redis.
func (s *Server) openLimits(ctx context.Context, cfg redislimit.Config) error {
	limits, err := redislimit.Open(cfg)
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	s.Limits = ratelimit.Fallback(limits, ratelimit.NewLocal())
	return s.own(ctx, "rate limits", limits.Close)
}

// checkRedis refuses a real Redis that does not answer or may evict leases.
func (s *Server) checkRedis(ctx context.Context) error {
	if err := s.Leases.Ready(ctx); err != nil {
		return fmt.Errorf("--redis: %w: %w", backends.ErrUnreachable, err)
	}
	warning, err := s.Leases.CheckEviction(ctx)
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	if warning != "" {
		s.Logger.WarnContext(ctx, "redis may lose leases", "reason", warning)
	}
	return nil
}

func (s *Server) openBus(ctx context.Context) error {
	cfg := natsbus.Config{URL: s.options.NATS, Name: "hermes-dev", Streams: s.cfg.NATS.Streams}
	// While the store is memory every stream is memory too, or a restart would answer old messages again. An embedded
	// broker keeps nothing in any case.
	cfg.Streams.Memory = s.options.NATS == ""
	if s.options.NATS == "" {
		server, err := embedded.Start(embedded.Options{Memory: true, InProcessOnly: true})
		if err != nil {
			return err
		}
		if err := s.own(ctx, "embedded nats", server.Stop); err != nil {
			return err
		}
		cfg.InProcess = server
	}
	b, err := natsbus.Connect(ctx, cfg, s.Logger)
	if err != nil {
		return fmt.Errorf("--nats: %w: %w", backends.ErrUnreachable, err)
	}
	s.Bus = b
	if err := s.own(ctx, "nats", b.Close); err != nil {
		return err
	}
	return b.EnsureStreams(ctx)
}

// startServices wires every app as its own main does, with toolexec behind a real gRPC connection on loopback.
func (s *Server) startServices(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("toolexec: %w", err)
	}
	//nolint:contextcheck // each call brings its own
	tools, err := toolexec.New(s.cfg.Toolexec, toolexec.Deps{
		Logger: s.Logger, TracerProvider: s.Traces, MeterProvider: s.Meters, Listener: listener,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	conn, err := rpc.Dial(listener.Addr().String(), s.Traces)
	if err != nil {
		return err
	}
	parts := []daemon.Named{
		{Name: "toolexec", Component: tools},
		{Name: "toolexec connection", Component: daemon.Closer(conn.Close)},
	}
	engine, health, err := s.engineParts(toolrpc.New(conn))
	if err != nil {
		return err
	}
	s.admin = daemon.NewHTTPServer(s.cfg.AdminAddr, daemon.AdminHandler(health, s.tel.MetricsHandler()), s.Logger)
	parts = append(parts, daemon.Named{Name: "admin", Component: s.admin})
	if err := s.group.Start(ctx, append(parts, engine...)...); err != nil {
		return err
	}
	health.SetReady(true)
	return nil
}

// engineParts builds the services in the order of their start: whoever answers before whoever accepts.
func (s *Server) engineParts(tools *toolrpc.Client) ([]daemon.Named, *daemon.Health, error) {
	models, err := worker.OpenModels(s.cfg)
	if err != nil {
		return nil, nil, err
	}
	egressApp, err := egress.New(s.cfg, s.Backends)
	if err != nil {
		return nil, nil, err
	}
	workerApp, err := worker.New(s.cfg, s.Backends, worker.Deps{Models: models, Executor: tools})
	if err != nil {
		return nil, nil, err
	}
	routerApp, err := router.New(s.cfg, s.Backends)
	if err != nil {
		return nil, nil, err
	}
	if s.ingress, err = ingress.New(s.cfg, s.Backends); err != nil {
		return nil, nil, err
	}
	if s.api, err = api.New(s.cfg, s.Backends); err != nil {
		return nil, nil, err
	}
	health := daemon.NewHealth(append(workerApp.Checks(), s.api.Checks()...)...)
	return []daemon.Named{
		{Name: "egress", Component: egressApp},
		{Name: "worker", Component: workerApp},
		{Name: "router", Component: routerApp},
		{Name: "ingress", Component: s.ingress},
		{Name: "api", Component: s.api},
	}, health, nil
}

// Addresses says where the server listens.
type Addresses struct {
	API   string `json:"api"`
	Hooks string `json:"hooks"`
	Admin string `json:"admin"`
}

// Addresses returns base URLs, once started.
func (s *Server) Addresses() Addresses {
	return Addresses{
		API:   "http://" + s.api.Addr(),
		Hooks: "http://" + s.ingress.Addr(),
		Admin: "http://" + s.admin.Addr(),
	}
}

// StartTimeout bounds a start with unreachable servers.
const StartTimeout = 20 * time.Second
