package hooks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// pass lets virtual time go by.
func pass(d time.Duration) { <-time.After(d) }

// memory is a bucket with one key.
type memory struct {
	mu       sync.Mutex
	value    []byte
	revision uint64
}

func (m *memory) Get(context.Context, string) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.revision == 0 {
		return nil, 0, bus.ErrNotFound
	}
	return m.value, m.revision, nil
}

func (m *memory) Put(_ context.Context, _ string, value []byte, revision uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision != m.revision {
		return 0, bus.ErrConflict
	}
	m.value, m.revision = value, m.revision+1
	return m.revision, nil
}

// link is a connection to the bucket that may be cut. With mute, writes arrive and their answers do not.
type link struct {
	*memory
	mu        sync.Mutex
	cut, mute bool
}

var errCut = errors.New("connection is cut")

func (l *link) set(cut, mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.mute = cut, mute
}

func (l *link) state() (cut, mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut, l.mute
}

func (l *link) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	if cut, _ := l.state(); cut {
		return nil, 0, errCut
	}
	return l.memory.Get(ctx, key)
}

func (l *link) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	cut, mute := l.state()
	if cut {
		return 0, errCut
	}
	written, err := l.memory.Put(ctx, key, value, revision)
	if mute {
		return 0, errCut
	}
	return written, err
}

// roster knows who works.
type roster struct {
	mu      sync.Mutex
	working map[string]bool
	most    int
}

func (r *roster) work(name string) func(context.Context) {
	return func(ctx context.Context) {
		r.set(name, true)
		<-ctx.Done()
		r.set(name, false)
	}
}

func (r *roster) set(name string, works bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.working, name)
	if works {
		r.working[name] = true
	}
	r.most = max(r.most, len(r.working))
}

func (r *roster) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []string{}
	for name := range r.working {
		list = append(list, name)
	}
	return list
}

// sit lets a process compete for the seat and returns what ends it.
func sit(t *testing.T, r *roster, kv bus.KV, name string) (stop func()) {
	t.Helper()
	s := &seat{kv: kv, key: "hook.x", holder: name, timing: DefaultTiming(), logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx, r.work(name)) })
	synctest.Wait()
	return func() {
		cancel()
		running.Wait()
	}
}

func TestSeat_IsHeldByOneProcessAndHandedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv, r := &memory{}, &roster{working: map[string]bool{}}
		stopA := sit(t, r, kv, "a")
		stopB := sit(t, r, kv, "b")
		defer stopB()
		pass(10 * time.Minute)
		require.Equal(t, []string{"a"}, r.names())
		stopA()
		pass(DefaultTiming().Watch + time.Second)
		require.Equal(t, []string{"b"}, r.names())
		require.Equal(t, 1, r.most)
	})
}

func TestSeat_IsLeftBeforeAnotherProcessTakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv, r := &memory{}, &roster{working: map[string]bool{}}
		broken := &link{memory: kv}
		stopA := sit(t, r, broken, "a")
		defer stopA()
		stopB := sit(t, r, kv, "b")
		defer stopB()
		pass(time.Minute)
		broken.set(true, false)
		pass(DefaultTiming().Expire + DefaultTiming().Watch + DefaultTiming().Renew)
		require.Equal(t, []string{"b"}, r.names())
		require.Equal(t, 1, r.most, "a has left in time")
		broken.set(false, false)
		pass(10 * time.Minute)
		require.Equal(t, []string{"b"}, r.names())
		require.Equal(t, 1, r.most)
	})
}

func TestSeat_GoesOnAfterAnswersWereLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv, r := &memory{}, &roster{working: map[string]bool{}}
		broken := &link{memory: kv}
		stopA := sit(t, r, broken, "a")
		defer stopA()
		stopB := sit(t, r, kv, "b")
		defer stopB()
		pass(time.Minute)
		broken.set(false, true)
		pass(DefaultTiming().Renew + time.Second)
		broken.set(false, false)
		pass(10 * time.Minute)
		require.Equal(t, []string{"a"}, r.names())
		require.Equal(t, 1, r.most)
	})
}

func TestSeat_IsTakenAgainWhenTheBrokerHasForgottenIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv, r := &memory{}, &roster{working: map[string]bool{}}
		stop := sit(t, r, kv, "a")
		defer stop()
		kv.mu.Lock()
		kv.value, kv.revision = nil, 0
		kv.mu.Unlock()
		pass(time.Minute)
		require.Equal(t, []string{"a"}, r.names())
	})
}
