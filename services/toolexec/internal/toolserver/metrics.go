package toolserver

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics have two labels, both bounded: tool and outcome.
type metrics struct {
	inFlight metric.Int64UpDownCounter
	duration metric.Float64Histogram
}

func newMetrics(meter metric.Meter) (metrics, error) {
	inFlight, err := meter.Int64UpDownCounter("hermes.toolexec.calls_in_flight",
		metric.WithDescription("Tool calls that hold a slot."), metric.WithUnit("{call}"))
	if err != nil {
		return metrics{}, fmt.Errorf("calls in flight: %w", err)
	}
	duration, err := meter.Float64Histogram("hermes.toolexec.call.duration",
		metric.WithDescription("Time of a tool call with its wait for a slot."), metric.WithUnit("s"))
	if err != nil {
		return metrics{}, fmt.Errorf("call duration: %w", err)
	}
	return metrics{inFlight: inFlight, duration: duration}, nil
}

// started counts a call until the function that it returns is called.
func (m metrics) started(ctx context.Context, tool string) (finished func()) {
	label := metric.WithAttributes(attribute.String("tool", tool))
	m.inFlight.Add(ctx, 1, label)
	return func() { m.inFlight.Add(ctx, -1, label) }
}

func (m metrics) finished(ctx context.Context, tool, outcome string, took time.Duration) {
	m.duration.Record(ctx, took.Seconds(),
		metric.WithAttributes(attribute.String("tool", tool), attribute.String("outcome", outcome)))
}
