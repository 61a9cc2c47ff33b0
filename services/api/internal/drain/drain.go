// Package drain ends requests that would outlast the stop of the service: streams and waits. Their clients go on
// elsewhere, from where they were.
package drain

import (
	"context"
	"errors"
)

// ErrStopping is the cause of contexts that a Gate has ended.
var ErrStopping = errors.New("service is stopping")

// Gate is a daemon.Component that is stopped before the server whose requests it ends. It is safe for concurrent use.
type Gate struct {
	ctx  context.Context //nolint:containedctx // the life of the service, which requests join
	stop context.CancelCauseFunc
}

// New returns an open gate.
func New() *Gate {
	g := &Gate{}
	g.ctx, g.stop = context.WithCancelCause(context.Background())
	return g
}

// Start does nothing: a gate is open from the beginning.
func (g *Gate) Start(context.Context) error { return nil }

// Stop ends all contexts of the gate with [ErrStopping], those to come too.
func (g *Gate) Stop(context.Context) error {
	g.stop(ErrStopping)
	return nil
}

// Context returns a context that ends with ctx or with the gate.
func (g *Gate) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return ctx, func() {
		forget()
		cancel(context.Canceled)
	}
}
