package accept

import (
	"context"
	"sync"
)

// lanes serialises work per key. A lane exists while somebody is in it or waits for it; the first to come is the first
// to go.
type lanes struct {
	mu    sync.Mutex
	byKey map[string]*lane
}

type lane struct {
	// turn holds a token while the lane is free; channels hand it on in the order of arrival.
	turn  chan struct{}
	users int
}

// enter waits for the turn of key and returns what ends it.
func (l *lanes) enter(ctx context.Context, key string) (leave func(), err error) {
	ln := l.join(key)
	select {
	case <-ln.turn:
		return func() {
			ln.turn <- struct{}{}
			l.quit(key, ln)
		}, nil
	case <-ctx.Done():
		l.quit(key, ln)
		return nil, context.Cause(ctx)
	}
}

func (l *lanes) join(key string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.byKey[key]
	if ln == nil {
		ln = &lane{turn: make(chan struct{}, 1)}
		ln.turn <- struct{}{}
		l.byKey[key] = ln
	}
	ln.users++
	return ln
}

func (l *lanes) quit(key string, ln *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln.users--; ln.users == 0 {
		delete(l.byKey, key)
	}
}
