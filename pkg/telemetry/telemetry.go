// Package telemetry sets up logs, traces and metrics of a process, and names the spans of messages on the bus.
//
// Nothing here is global: a [Telemetry] is built once in main and its parts are passed on.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/config"
)

// Telemetry holds what a process reports with.
type Telemetry struct {
	Logger *slog.Logger
	Traces trace.TracerProvider
	Meters metric.MeterProvider

	registry *prometheus.Registry
	shutdown []func(context.Context) error
}

// Options say who reports.
type Options struct {
	// Service is the OpenTelemetry service.name, Version its version.
	Service, Version string
	// Logs is where logs go; nil is standard error.
	Logs io.Writer
	// SpanProcessor replaces the exporter that the configuration asks for; used by tests.
	SpanProcessor sdktrace.SpanProcessor
}

// New builds the telemetry of a process. Traces are exported only if cfg names a collector; metrics are always there to
// be scraped.
func New(ctx context.Context, cfg config.Telemetry, opt Options) (*Telemetry, error) {
	logger, err := newLogger(cfg, opt)
	if err != nil {
		return nil, err
	}
	t := &Telemetry{Logger: logger.With("service", opt.Service), registry: prometheus.NewRegistry()}
	res := resource.NewSchemaless(
		attribute.String("service.name", opt.Service),
		attribute.String("service.version", opt.Version),
		attribute.String("service.namespace", "hermes"),
	)
	if err := t.startTraces(ctx, cfg, opt, res); err != nil {
		return nil, err
	}
	if err := t.startMetrics(res); err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	return t, nil
}

func newLogger(cfg config.Telemetry, opt Options) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return nil, fmt.Errorf("telemetry.log_level: %w", err)
	}
	w := opt.Logs
	if w == nil {
		w = os.Stderr
	}
	handlerOptions := &slog.HandlerOptions{Level: level}
	switch cfg.LogFormat {
	case "json":
		return slog.New(traceHandler{slog.NewJSONHandler(w, handlerOptions)}), nil
	case "text":
		return slog.New(traceHandler{slog.NewTextHandler(w, handlerOptions)}), nil
	default:
		return nil, fmt.Errorf("telemetry.log_format: %q is neither json nor text", cfg.LogFormat)
	}
}

func (t *Telemetry) startTraces(ctx context.Context, cfg config.Telemetry, opt Options, res *resource.Resource) error {
	sampler := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.SampleRatio))
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	switch {
	case opt.SpanProcessor != nil:
		options = append(options, sdktrace.WithSpanProcessor(opt.SpanProcessor))
	case cfg.OTLPEndpoint != "":
		dial := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(cfg.OTLPEndpoint)}
		if cfg.OTLPInsecure {
			dial = append(dial, otlptracegrpc.WithInsecure())
		}
		exporter, err := otlptracegrpc.New(ctx, dial...)
		if err != nil {
			return fmt.Errorf("telemetry.otlp_endpoint %s: %w", cfg.OTLPEndpoint, err)
		}
		options = append(options, sdktrace.WithBatcher(exporter))
	default: // nobody collects spans: their ids are passed on, and nothing is recorded
		sampler = sdktrace.NeverSample()
	}
	options = append(options, sdktrace.WithSampler(sampler))
	provider := sdktrace.NewTracerProvider(options...)
	t.Traces = provider
	t.shutdown = append(t.shutdown, provider.Shutdown)
	return nil
}

func (t *Telemetry) startMetrics(res *resource.Resource) error {
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("start metrics: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res))
	t.Meters = provider
	t.shutdown = append(t.shutdown, provider.Shutdown)
	return nil
}

// MetricsHandler serves the metrics in Prometheus' format.
func (t *Telemetry) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{})
}

// Shutdown sends what is buffered. ctx bounds it.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for i := len(t.shutdown) - 1; i >= 0; i-- {
		errs = append(errs, t.shutdown[i](ctx))
	}
	return errors.Join(errs...)
}

// traceHandler adds trace_id and span_id to every record that is logged inside a span.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r) // a handler passes its inner handler's error on
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}
