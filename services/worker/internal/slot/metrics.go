package slot

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Metrics of the slots.
type Metrics struct {
	meter    metric.Meter
	refused  metric.Int64Counter
	reclaims metric.Int64Counter
	renewals metric.Float64Histogram
}

// NewMetrics makes the instruments.
func NewMetrics(meter metric.Meter) (*Metrics, error) {
	refused, errRefused := meter.Int64Counter("hermes_claims_refused_total",
		metric.WithDescription("Doorbells whose run was somebody else's, by what refused them: lease or claim."))
	renewals, errRenewals := meter.Float64Histogram("hermes_lease_renew_duration_seconds", metric.WithUnit("s"),
		metric.WithDescription("Time of one pipeline of lease renewals."))
	reclaims, errReclaims := meter.Int64Counter("hermes_reclaims_total",
		metric.WithDescription("Runs whose lease Redis had forgotten, by what became of them: kept or lost."))
	if err := errors.Join(errRefused, errRenewals, errReclaims); err != nil {
		return nil, fmt.Errorf("slot metrics: %w", err)
	}
	return &Metrics{meter: meter, refused: refused, reclaims: reclaims, renewals: renewals}, nil
}

// observe reports how full the room is.
func (m *Metrics) observe(r *room) error {
	report := func(value func() int) metric.Int64ObservableGaugeOption {
		return metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(value()))
			return nil
		})
	}
	_, errUsed := m.meter.Int64ObservableGauge("hermes_worker_slots_used",
		metric.WithDescription("Runs in hand."), report(r.used))
	_, errTotal := m.meter.Int64ObservableGauge("hermes_worker_slots",
		metric.WithDescription("Runs that the worker can hold."), report(func() int { return r.total }))
	if err := errors.Join(errUsed, errTotal); err != nil {
		return fmt.Errorf("slot gauges: %w", err)
	}
	return nil
}

func (m *Metrics) refuse(ctx context.Context, by string) {
	m.refused.Add(ctx, 1, metric.WithAttributes(attribute.String("by", by)))
}

// reclaimed counts what became of runs.
func (m *Metrics) reclaimed(ctx context.Context, kept, lost int) {
	m.reclaims.Add(ctx, int64(kept), metric.WithAttributes(attribute.String("outcome", "kept")))
	m.reclaims.Add(ctx, int64(lost), metric.WithAttributes(attribute.String("outcome", "lost")))
}
