// Package daemon runs long-lived parts in order and serves the operator endpoints of a process.
//
//	   Start                    Stop
//	a ──► b ──► c            c ──► b ──► a
//
// Parts start one after the other and stop in reverse, so that a part may rely on those before it for its whole life.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Component is a long-lived part of a process.
type Component interface {
	// Start returns when the part is ready. ctx bounds the start only.
	Start(ctx context.Context) error
	// Stop drains until ctx ends, then gives up what is left. It returns when nothing of the part runs any more, and is
	// safe twice and before Start.
	Stop(ctx context.Context) error
}

// Named is a component with the name that logs and errors use.
type Named struct {
	Name string
	Component
}

// Group starts and stops components in order. The zero value with Logger set is ready.
type Group struct {
	Logger *slog.Logger

	mu      sync.Mutex
	started []Named
}

// Start starts parts in order. If one fails, those before it are stopped again (within ctx) and the error names it.
func (g *Group) Start(ctx context.Context, parts ...Named) error {
	for _, p := range parts {
		if err := p.Start(ctx); err != nil {
			return errors.Join(fmt.Errorf("start %s: %w", p.Name, err), p.Stop(ctx), g.Stop(ctx))
		}
		g.mu.Lock()
		g.started = append(g.started, p)
		g.mu.Unlock()
	}
	return nil
}

// Stop stops the started parts in reverse order and joins their errors. The second call does nothing.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	parts := g.started
	g.started = nil
	g.mu.Unlock()
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		begin := time.Now()
		if err := parts[i].Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", parts[i].Name, err))
		}
		g.Logger.DebugContext(ctx, "stopped", "part", parts[i].Name, "took", time.Since(begin))
	}
	return errors.Join(errs...)
}

// Run starts parts, waits until ctx ends, and stops them within grace.
func Run(ctx context.Context, logger *slog.Logger, grace time.Duration, parts ...Named) error {
	g := &Group{Logger: logger}
	if err := g.Start(ctx, parts...); err != nil {
		return err
	}
	logger.InfoContext(ctx, "ready")
	<-ctx.Done()
	// The drain outlives the signal that ended ctx.
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	logger.InfoContext(stopCtx, "draining", "grace", grace.String())
	return g.Stop(stopCtx)
}

// Closer is a component that is ready from the beginning and only has to be closed.
type Closer func() error

// Start does nothing.
func (c Closer) Start(context.Context) error { return nil }

// Stop closes, once: a group stops each part once.
func (c Closer) Stop(context.Context) error { return c() }
