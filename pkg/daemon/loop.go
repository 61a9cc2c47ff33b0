package daemon

import (
	"context"
	"sync"
)

// Loops owns goroutines that run until they are stopped. The zero value is ready.
type Loops struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // the life of the goroutines that this value owns
	wg     sync.WaitGroup
}

// Go runs f in a goroutine; its context ends at Stop. The values of the first call's ctx are kept, not its end.
//
//nolint:contextcheck // the goroutines outlive the call, up to Stop
func (l *Loops) Go(ctx context.Context, f func(ctx context.Context)) {
	l.mu.Lock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	run := l.ctx
	l.mu.Unlock()
	l.wg.Go(func() { f(run) })
}

// Stop ends the context of all goroutines and waits for them, or until ctx ends. Safe twice and before Go.
func (l *Loops) Stop(ctx context.Context) error {
	l.mu.Lock()
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
