// Package app is the tool executor: hermes.tool.v1 over gRPC, with every call in a sandboxed process.
//
// A binary that hosts an App hands over to [RunChild] before it does anything else:
//
//	if app.IsChild(os.Args) {
//		os.Exit(app.RunChild())
//	}
//
// [App.Start] fails where that is missing.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/builtin"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/sandbox"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/toolserver"
	"github.com/hermes-runtime/hermes/services/toolexec/internal/workspace"
)

const scope = "github.com/hermes-runtime/hermes/services/toolexec"

// Deps are supplied by code, not by operators.
type Deps struct {
	Logger *slog.Logger
	// TracerProvider and MeterProvider may be nil.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Listener replaces one on cfg.Addr; from Start on it belongs to the App.
	Listener net.Listener
}

// App is a daemon.Component. It is started at most once.
type App struct {
	cfg    config.Toolexec
	deps   Deps
	grpc   *grpc.Server
	health *health.Server

	mu       sync.Mutex
	started  bool
	stopped  bool
	listener net.Listener
	folders  *workspace.Folders
	report   sandbox.Report
	drain    sync.Once
	// served is closed when the server has ended; failure is why, if nobody asked it to.
	served  chan struct{}
	failure atomic.Pointer[error]
}

// IsChild reports whether this process was started as a tool process.
func IsChild(args []string) bool { return sandbox.IsChild(args) }

// RunChild does the work of a tool process and returns its exit code.
func RunChild() int { return sandbox.RunChild(os.Args, builtin.Operations()) }

// New wires the executor. Nothing runs before Start.
func New(cfg config.Toolexec, deps Deps) (*App, error) {
	var errs []error
	if deps.Logger == nil {
		errs = append(errs, errors.New("toolexec: a logger is needed"))
	}
	if cfg.Workspaces == "" {
		errs = append(errs, errors.New("toolexec.workspaces: must not be empty"))
	}
	if cfg.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("toolexec.timeout: %s is not positive", cfg.Timeout))
	}
	if cfg.OutputBytes < minOutputBytes {
		errs = append(errs, fmt.Errorf("toolexec.output_bytes: %d is under %d", cfg.OutputBytes, minOutputBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if deps.TracerProvider == nil {
		deps.TracerProvider = tracenoop.NewTracerProvider()
	}
	if deps.MeterProvider == nil {
		deps.MeterProvider = metricnoop.NewMeterProvider()
	}
	a := &App{cfg: cfg, deps: deps, health: health.NewServer(), served: make(chan struct{})}
	a.grpc = newGRPCServer(deps)
	return a, nil
}

const minOutputBytes = 1024

// Start finds out what the sandbox can enforce, logs it once, and returns when the server listens.
func (a *App) Start(ctx context.Context) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started || a.stopped {
		return errors.New("toolexec: start: was started or stopped before")
	}
	if a.listener, err = a.listen(ctx); err != nil {
		return fmt.Errorf("toolexec: listen: %w", err)
	}
	server, err := a.build(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("toolexec: start: %w", err), a.listener.Close())
	}
	register(a.grpc, server, a.health)
	a.started = true
	go a.serve()
	a.deps.Logger.InfoContext(ctx, "sandbox", "limits", a.report)
	return nil
}

func (a *App) listen(ctx context.Context) (net.Listener, error) {
	if a.deps.Listener != nil {
		return a.deps.Listener, nil
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", a.cfg.Addr)
}

// build makes what touches the machine: workspaces and sandbox.
func (a *App) build(ctx context.Context) (*toolserver.Server, error) {
	limits := sandbox.DefaultLimits()
	limits.CPU = sandbox.CPUOver(a.cfg.Timeout)
	box, err := sandbox.New(ctx, limits)
	if err != nil {
		return nil, err
	}
	a.report = box.Report()
	folders, err := workspace.Open(a.cfg.Workspaces)
	if err != nil {
		return nil, err
	}
	server, err := toolserver.New(toolserver.Options{
		Tools:       builtin.Tools(box, builtin.Web{Allow: builtin.NewAllowList(a.cfg.AllowHosts)}),
		Workspaces:  folders,
		Timeout:     a.cfg.Timeout,
		OutputBytes: a.cfg.OutputBytes,
		Logger:      a.deps.Logger,
		Meter:       a.deps.MeterProvider.Meter(scope),
	})
	if err != nil {
		return nil, errors.Join(err, folders.Close())
	}
	a.folders = folders
	return server, nil
}

func (a *App) serve() {
	defer close(a.served)
	if err := a.grpc.Serve(a.listener); err != nil {
		a.failure.Store(&err)
		a.deps.Logger.Error("tool server ended", "err", err)
	}
}

// Stop takes no new calls, waits for those that run until ctx ends, then cancels them and waits until their processes
// are gone. It is safe twice and before Start.
func (a *App) Stop(ctx context.Context) error {
	a.mu.Lock()
	a.stopped = true
	started := a.started
	a.mu.Unlock()
	if !started {
		return nil
	}
	var err error
	a.drain.Do(func() { err = a.shutdown(ctx) })
	return err
}

func (a *App) shutdown(ctx context.Context) error {
	a.health.Shutdown()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		a.grpc.GracefulStop()
	}()
	var err error
	select {
	case <-drained:
	case <-ctx.Done():
		err = fmt.Errorf("toolexec: calls were cut off: %w", context.Cause(ctx))
		a.grpc.Stop()
		<-drained
	}
	<-a.served
	return errors.Join(err, a.folders.Close())
}

// Addr returns the address that the server listens on, or is going to.
func (a *App) Addr() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.listener != nil:
		return a.listener.Addr().String()
	case a.deps.Listener != nil:
		return a.deps.Listener.Addr().String()
	default:
		return a.cfg.Addr
	}
}

// Ready reports why calls cannot be taken now, nil if they can.
func (a *App) Ready(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started || a.stopped {
		return errors.New("toolexec: not running")
	}
	if err := a.failure.Load(); err != nil {
		return fmt.Errorf("toolexec: serve: %w", *err)
	}
	return a.folders.Ready()
}

// Checks are asked by /readyz.
func (a *App) Checks() []daemon.Check {
	return []daemon.Check{{Name: "toolexec", Ready: a.Ready}}
}

// Limit is one limit of the sandbox: what holds, and what makes it hold ("nothing" where it is not enforced).
type Limit = sandbox.Limit

// Report returns the limits of tool processes on this machine, nil before Start.
func (a *App) Report() []Limit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.report
}
