package slot

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/lease"
)

// memBus is a broker within the process: one work queue for all pools, and messages that are not stored.
type memBus struct {
	queue chan *memWork

	mu        sync.Mutex
	listeners map[string]chan<- bus.Msg
	acked     int
	naked     int
}

func newMemBus() *memBus {
	return &memBus{queue: make(chan *memWork, 64), listeners: map[string]chan<- bus.Msg{}}
}

type memWork struct {
	bus *memBus
	msg bus.Msg
}

func (w *memWork) Msg() bus.Msg { return w.msg }

func (w *memWork) Ack() error {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.bus.acked++
	return nil
}

func (w *memWork) Nak() error {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.bus.naked++
	return nil
}

func (b *memBus) settled() (acked, naked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acked, b.naked
}

func (b *memBus) Publish(_ context.Context, m bus.Msg) (bus.Ack, error) {
	b.queue <- &memWork{bus: b, msg: m}
	return bus.Ack{}, nil
}

func (*memBus) PublishAll(context.Context, []bus.Msg) []error { panic("not used") }

func (b *memBus) Notify(_ context.Context, m bus.Msg) error {
	b.mu.Lock()
	ch := b.listeners[m.Subject]
	b.mu.Unlock()
	if ch != nil {
		ch <- m
	}
	return nil
}

type memSubscription struct {
	bus     *memBus
	subject string
}

func (s memSubscription) Close() error {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	delete(s.bus.listeners, s.subject)
	return nil
}

func (b *memBus) Listen(subject string, ch chan<- bus.Msg) (bus.Subscription, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners[subject] = ch
	return memSubscription{b, subject}, nil
}

func (b *memBus) Request(ctx context.Context, m bus.Msg) (bus.Msg, error) {
	b.mu.Lock()
	_, known := b.listeners[m.Subject]
	b.mu.Unlock()
	if !known {
		return bus.Msg{}, bus.ErrNoResponder
	}
	answers := make(chan bus.Msg, 1)
	m.Reply = "reply." + uuid.NewString()
	sub, err := b.Listen(m.Reply, answers)
	if err != nil {
		return bus.Msg{}, err
	}
	if err := b.Notify(ctx, m); err != nil {
		return bus.Msg{}, err
	}
	select {
	case answer := <-answers:
		return answer, sub.Close()
	case <-ctx.Done():
		return bus.Msg{}, context.Cause(ctx)
	}
}

func (b *memBus) Work(context.Context, bus.Queue) (bus.Worker, error) { return memWorker{b}, nil }

type memWorker struct{ bus *memBus }

func (w memWorker) Fetch(ctx context.Context, limit int, wait time.Duration) ([]bus.Work, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var works []bus.Work
	select {
	case one := <-w.bus.queue:
		works = append(works, one)
	case <-ctx.Done():
		return nil, nil
	}
	for len(works) < limit {
		select {
		case one := <-w.bus.queue:
			works = append(works, one)
		default:
			return works, nil
		}
	}
	return works, nil
}

// memLeases are leases within the process that end only when they are released, or forgotten.
type memLeases struct {
	mu   sync.Mutex
	held map[string]lease.Lease
	down bool
}

func newMemLeases() *memLeases { return &memLeases{held: map[string]lease.Lease{}} }

func (m *memLeases) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

func (m *memLeases) all() map[string]lease.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.held)
}

// each calls f under the lock, with the lease that is stored.
func (m *memLeases) each(leases []lease.Lease, f func(i int, l, stored lease.Lease, found bool)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return lease.ErrUnavailable
	}
	for i, l := range leases {
		stored, found := m.held[l.SKey]
		f(i, l, stored, found)
	}
	return nil
}

func (*memLeases) Reserve(context.Context, []lease.Lease) ([]lease.Grant, error) { panic("not used") }

func (*memLeases) Lookup(context.Context, []string) ([]*lease.Lease, error) { panic("not used") }

func (m *memLeases) Acquire(_ context.Context, leases []lease.Lease) ([]lease.Grant, error) {
	grants := make([]lease.Grant, len(leases))
	return grants, m.each(leases, func(i int, l, stored lease.Lease, found bool) {
		if found && stored.Gen >= l.Gen && stored != l {
			grants[i].Held = stored
			return
		}
		grants[i].OK, m.held[l.SKey] = true, l
	})
}

func (m *memLeases) Renew(_ context.Context, leases []lease.Lease) ([]lease.Renewed, error) {
	results := make([]lease.Renewed, len(leases))
	return results, m.each(leases, func(i int, l, stored lease.Lease, found bool) {
		switch {
		case !found:
			results[i] = lease.Absent
		case stored != l:
			results[i] = lease.Lost
		}
	})
}

func (m *memLeases) Release(_ context.Context, leases []lease.Lease) error {
	return m.each(leases, func(_ int, l, stored lease.Lease, _ bool) {
		if stored == l {
			delete(m.held, l.SKey)
		}
	})
}
