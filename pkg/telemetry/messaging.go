package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// Destination templates of the messaging conventions: subjects hold session keys, templates do not.
const (
	TemplateIngest = "ing.{pp}.{tenant}.{skey}"
	TemplateRun    = "run.{class}.{pp}"
	TemplateOut    = "out.{platform}.{pp}"
)

// StartPublish starts the producer span of m and writes its context into m's headers. End it with [EndSpan].
func StartPublish(ctx context.Context, tracer trace.Tracer, template string, m *bus.Msg) (context.Context, trace.Span) {
	ctx, span := startMessaging(ctx, tracer, "publish", "send", template, trace.SpanKindProducer)
	InjectHeaders(ctx, m)
	return ctx, span
}

// StartProcess starts the consumer span of m as a child of the span that published it.
func StartProcess(ctx context.Context, tracer trace.Tracer, template string, m bus.Msg) (context.Context, trace.Span) {
	return startMessaging(event.ExtractTrace(ctx, m.Header), tracer, "process", "process", template, trace.SpanKindConsumer)
}

// InjectHeaders writes the trace context of ctx into m's headers.
func InjectHeaders(ctx context.Context, m *bus.Msg) {
	if m.Header == nil {
		m.Header = bus.Header{}
	}
	event.InjectTrace(ctx, m.Header)
}

func startMessaging(ctx context.Context, tracer trace.Tracer, verb, operation, template string, kind trace.SpanKind) (context.Context, trace.Span) {
	//nolint:spancheck // the callers' callers end it
	return tracer.Start(ctx, verb+" "+template, trace.WithSpanKind(kind), trace.WithAttributes(
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.destination.template", template),
		attribute.String("messaging.operation.name", verb),
		attribute.String("messaging.operation.type", operation),
	))
}

// EndSpan ends span and records err, if any.
func EndSpan(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
