package event

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// traceContext is the only propagator in use: W3C Trace Context, without baggage.
//
//nolint:gochecknoglobals // it has no state
var traceContext = propagation.TraceContext{}

// headerCarrier adapts message headers. NATS header keys keep their case, so they are lower case as W3C spells them.
type headerCarrier map[string][]string

func (c headerCarrier) Get(key string) string {
	if v := c[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (c headerCarrier) Set(key, value string) { c[key] = []string{value} }

func (c headerCarrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}

// InjectTrace writes the trace context of ctx into message headers.
func InjectTrace(ctx context.Context, header map[string][]string) {
	traceContext.Inject(ctx, headerCarrier(header))
}

// ExtractTrace returns ctx with the trace context that message headers carry, if any.
func ExtractTrace(ctx context.Context, header map[string][]string) context.Context {
	return traceContext.Extract(ctx, headerCarrier(header))
}

// Traceparent returns the W3C traceparent of ctx, the form that rows store; "" if ctx has no span.
func Traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	traceContext.Inject(ctx, c)
	return c["traceparent"]
}

// WithTraceparent returns ctx with the trace that a row stored.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return traceContext.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
