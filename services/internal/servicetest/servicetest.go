// Package servicetest gives tests of services a real broker and a store in memory.
package servicetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

// Env is one broker and one store.
type Env struct {
	Server *natsserver.Server
	Bus    *natsbus.Bus
	Store  *memstore.Store
}

// New starts a broker with all streams, which ends with the test.
func New(t *testing.T, opts ...memstore.Option) *Env {
	t.Helper()
	e := &Env{Server: natsserver.NewMemory(t), Store: memstore.New(opts...)}
	e.Bus = e.Connect(t)
	require.NoError(t, e.Bus.EnsureStreams(t.Context()))
	return e
}

// Connect opens another connection to the broker.
func (e *Env) Connect(t *testing.T) *natsbus.Bus {
	t.Helper()
	streams := bus.DefaultConfig()
	streams.Memory, streams.IngestMaxBytes, streams.EventMaxBytes = true, 64<<20, 8<<20
	b, err := natsbus.Connect(t.Context(), natsbus.Config{URL: e.Server.URL(), Name: t.Name(), Streams: streams}, Logger())
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() }) // the server may be down by then
	return b
}

// Backends are what a service is built on: a broker and a store, and rates of the process.
func (e *Env) Backends() backends.Backends {
	return backends.Backends{
		Bus: e.Bus, Store: e.Store, Limits: ratelimit.NewLocal(), Logger: Logger(), Traces: tracenoop.NewTracerProvider(), Meters: metricnoop.NewMeterProvider(),
	}
}

// Stored counts the messages in the ingest stream.
func (e *Env) Stored(t *testing.T) int {
	t.Helper()
	info, err := e.Bus.LogInfo(t.Context(), 0)
	require.NoError(t, err)
	return int(info.LastSeq)
}

// Entry returns a message of the ingest stream.
func (e *Env) Entry(t *testing.T, seq int) bus.Entry {
	t.Helper()
	entry, err := e.Bus.EntryAt(t.Context(), 0, uint64(seq))
	require.NoError(t, err)
	return entry
}

// Logger drops everything.
func Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

const stopTimeout = 15 * time.Second

// Start starts a component, which is stopped when the test ends.
func Start(t *testing.T, c daemon.Component) {
	t.Helper()
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { Stop(t, c) })
}

// Stop stops a component; the context of a test has ended where that happens.
func Stop(t *testing.T, c daemon.Component) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopTimeout)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}
