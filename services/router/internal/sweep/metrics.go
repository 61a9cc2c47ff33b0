package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// utilisation is the share of its slots that a worker should fill.
const utilisation = 0.75

// gauges show the backlog of the whole cluster: every router counts all partitions, so take the maximum over routers.
type gauges struct {
	sessions metric.Int64Gauge
	wanted   metric.Int64Gauge
}

func (g *gauges) register(meter metric.Meter) error {
	var errs [2]error
	g.sessions, errs[0] = meter.Int64Gauge("hermes_sessions",
		metric.WithDescription("Sessions of the cluster by state; every router reports all of them."))
	g.wanted, errs[1] = meter.Int64Gauge("hermes_workers_wanted",
		metric.WithDescription("Workers that the cluster's running and queued sessions need; every router reports it."))
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("sweep metrics: %w", err)
	}
	return nil
}

func (g *gauges) record(ctx context.Context, running, queued, slots int) {
	g.sessions.Record(ctx, int64(running), metric.WithAttributes(attribute.String("state", "running")))
	g.sessions.Record(ctx, int64(queued), metric.WithAttributes(attribute.String("state", "queued")))
	g.wanted.Record(ctx, workersWanted(running, queued, slots))
}

func workersWanted(running, queued, slots int) int64 {
	return int64(math.Ceil(float64(running+queued) / (float64(slots) * utilisation)))
}
