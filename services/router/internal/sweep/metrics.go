package sweep

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics count what the rules find. The gauges show the backlog of the whole cluster: every router counts all
// partitions, so take the maximum over routers.
type metrics struct {
	found    metric.Int64Counter
	errs     metric.Int64Counter
	sessions metric.Int64Gauge
	wanted   metric.Int64Gauge
}

func (m *metrics) register(meter metric.Meter) error {
	var errs [4]error
	m.found, errs[0] = meter.Int64Counter("hermes_swept_total",
		metric.WithDescription("What the sweeper found left behind, by rule."))
	m.errs, errs[1] = meter.Int64Counter("hermes_sweep_errors_total",
		metric.WithDescription("Sweeps that a rule could not end, by rule."))
	m.sessions, errs[2] = meter.Int64Gauge("hermes_sessions",
		metric.WithDescription("Sessions of the cluster by state; every router reports all of them."))
	m.wanted, errs[3] = meter.Int64Gauge("hermes_workers_wanted",
		metric.WithDescription("Workers that the cluster's running and queued sessions need; every router reports it."))
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("sweep metrics: %w", err)
	}
	return nil
}

// count notes what a rule has found, and whether it has failed.
func (m *metrics) count(ctx context.Context, rule string, found int, err error) {
	by := metric.WithAttributes(attribute.String("rule", rule))
	if found > 0 {
		m.found.Add(ctx, int64(found), by)
	}
	if err != nil {
		m.errs.Add(ctx, 1, by)
	}
}

func (m *metrics) backlog(ctx context.Context, running, queued, slots int) {
	m.sessions.Record(ctx, int64(running), metric.WithAttributes(attribute.String("state", "running")))
	m.sessions.Record(ctx, int64(queued), metric.WithAttributes(attribute.String("state", "queued")))
	m.wanted.Record(ctx, workersWanted(running, queued, slots))
}
