// Package backends opens what the services of one process share: bus, leases, store and telemetry.
package backends

import (
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Backends are the ports that a service is built on. Each service uses those that it needs; the others may be nil.
type Backends struct {
	Bus    bus.Bus
	Leases lease.Leases
	// Limits never fails for want of Redis: then the process keeps the rates by itself.
	Limits ratelimit.Limiter
	Store  store.Store
	// Aliases may stand alone where Store is nil.
	Aliases store.Aliases
	Logger  *slog.Logger
	Traces  trace.TracerProvider
	Meters  metric.MeterProvider
}
