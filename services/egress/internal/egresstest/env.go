// Package egresstest gives tests of egress a broker, a store and leases whose clock can be moved, a platform that follows
// a script, and runs that stream as workers do.
package egresstest

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	"github.com/hermes-runtime/hermes/services/egress/internal/delivery"
	"github.com/hermes-runtime/hermes/services/egress/internal/live"
	"github.com/hermes-runtime/hermes/services/egress/internal/rate"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

// Account of all targets, Tenant of all sessions.
const (
	Account = "bot"
	Tenant  = "default"
)

// patience is long: a slow machine must not let an edit come late.
const patience = 20 * time.Second

// Env is what egress processes share.
type Env struct {
	*servicetest.Env
	Redis    *miniredis.Miniredis
	Limits   ratelimit.Limiter
	Platform *Platform

	t *testing.T
	// name and sender are the platform in use.
	name   string
	sender channel.Sender

	ahead atomic.Int64
	rings atomic.Int64
	// told are the events of runs that were published.
	told atomic.Int64

	mu     sync.Mutex
	events []event.Lifecycle
}

// New returns an Env that ends with the test.
func New(t *testing.T) *Env {
	t.Helper()
	e := &Env{t: t, name: Name, Platform: NewPlatform(), Redis: redisserver.NewMini(t)}
	e.sender = e.Platform
	e.Env = servicetest.New(t, memstore.WithClock(e.now))
	e.Limits = ratelimit.NewLocalAt(e.now)
	return e
}

// Use takes another platform in place of the scripted one.
func (e *Env) Use(name string, s channel.Sender) { e.name, e.sender = name, s }

// now is the clock of store and limits.
func (e *Env) now() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }

// Process is one egress process.
type Process struct {
	Deliverer *delivery.Deliverer
	Watcher   *live.Watcher
}

// Options of a process.
type Options struct {
	// WithoutRedis: it has neither leases nor previews. Shows only: it does not deliver. Delivers only: it does not show.
	WithoutRedis, ShowsOnly, DeliversOnly bool
}

// Start starts an egress process that ends with the test.
func (e *Env) Start(id string, o Options) *Process {
	e.t.Helper()
	p := e.Build(id, o)
	if !o.ShowsOnly {
		servicetest.Start(e.t, p.Deliverer)
	}
	if !o.DeliversOnly {
		servicetest.Start(e.t, p.Watcher)
	}
	return p
}

// Build returns a process that is not started.
func (e *Env) Build(id string, o Options) *Process {
	e.t.Helper()
	b := e.Connect(e.t)
	senders := map[string]channel.Sender{e.name: e.sender}
	ds := delivery.Deps{
		Bus: b, Outbox: e.Store, Chats: e.Store, Limits: e.Limits, Emitter: e, Logger: servicetest.Logger(),
		Tracer: tracenoop.NewTracerProvider().Tracer(""), Meter: metricnoop.Meter{}, Senders: senders,
	}
	ls := live.Deps{
		Bus: b, Store: e.Store, Gate: rate.NewGate(e.Limits, servicetest.Logger()), Senders: senders, Logger: servicetest.Logger(),
		Meter: metricnoop.Meter{},
	}
	if !o.WithoutRedis {
		leases := e.Leases()
		ds.Previews, ls.Previews = leases, leases
	}
	d, err := delivery.New(delivery.Config{ID: id, SendTimeout: 5 * time.Second, PreviewStop: patience, Parallel: 16}, ds)
	require.NoError(e.t, err)
	w, err := live.New(live.Config{ID: id, Max: live.DefaultMax}, ls)
	require.NoError(e.t, err)
	return &Process{Deliverer: d, Watcher: w}
}

// Leases opens the leases of a process.
func (e *Env) Leases() lease.Leases {
	e.t.Helper()
	l, err := redislease.Open(e.t.Context(), redislease.Config{URL: "redis://" + e.Redis.Addr()})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, l.Close()) })
	return l
}

// Emit notes what deliverers tell.
func (e *Env) Emit(ev event.Lifecycle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, ev)
}

// Outcomes are those of the events of a type.
func (e *Env) Outcomes(typ event.Type) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []string
	for _, ev := range e.events {
		if ev.Type == typ {
			list = append(list, ev.Outcome)
		}
	}
	return list
}

// Ring publishes a doorbell.
func (e *Env) Ring(skey string, outSeq int64) {
	e.t.Helper()
	data, err := proto.Marshal(&deliveryv1.Doorbell{Skey: skey, OutSeq: outSeq})
	require.NoError(e.t, err)
	_, err = e.Bus.Publish(e.t.Context(), bus.Msg{
		Subject: bus.OutSubject(e.name, skey), ID: fmt.Sprintf("%s:%d:%d", skey, outSeq, e.rings.Add(1)), Data: data,
	})
	require.NoError(e.t, err)
}

// Pass lets time pass for store and limits, and rings what is due, as the router's sweeper does. It returns how many rows
// were.
func (e *Env) Pass(d time.Duration) int {
	e.t.Helper()
	e.ahead.Add(int64(d))
	due, err := e.Store.DueDeliveries(e.t.Context(), 100)
	require.NoError(e.t, err)
	for _, bell := range due {
		e.Ring(bell.SKey, bell.OutSeq)
	}
	return len(due)
}

// Acknowledged reports whether no doorbell is open: what was rung is settled, put off or dropped. Only events of runs
// are stored besides.
func (e *Env) Acknowledged() bool {
	info, err := e.Server.Server().Jsz(nil)
	return err == nil && info.Messages == uint64(e.told.Load())
}

// Settled is how many rows of a session are settled.
func (e *Env) Settled(skey string) int64 {
	e.t.Helper()
	s, err := e.Store.Session(e.t.Context(), skey)
	require.NoError(e.t, err)
	return s.OutSent
}

// Address is where chat is.
func Address(chat string) event.Address {
	return event.Address{Platform: Name, Account: Account, ChatID: chat}
}

// session returns the keys of a chat.
func keys(chat string) (sessionKey, skey string) {
	src := session.Source{Platform: "webhook", Account: Account, ChatID: chat, ChatType: "dm"}
	sessionKey = session.Key(src, session.DefaultOptions())
	return sessionKey, session.SKey(Tenant, sessionKey)
}

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
