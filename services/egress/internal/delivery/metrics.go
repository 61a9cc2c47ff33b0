package delivery

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics have bounded labels: platform and outcome.
type metrics struct {
	tries    metric.Int64Counter
	refusals metric.Int64Counter
	ages     metric.Float64Histogram
}

func newMetrics(meter metric.Meter) (metrics, error) {
	tries, err := meter.Int64Counter("hermes.delivery.tries",
		metric.WithDescription("Tries to deliver a reply, by what became of them."))
	if err != nil {
		return metrics{}, fmt.Errorf("delivery metrics: %w", err)
	}
	refusals, err := meter.Int64Counter("hermes.delivery.credential_refusals",
		metric.WithDescription("Sends that a platform refused because it does not accept the account."))
	if err != nil {
		return metrics{}, fmt.Errorf("delivery metrics: %w", err)
	}
	ages, err := meter.Float64Histogram("hermes.delivery.age", metric.WithUnit("s"),
		metric.WithDescription("Time from the end of a run to its settled reply."),
		metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 300, 1800))
	if err != nil {
		return metrics{}, fmt.Errorf("delivery metrics: %w", err)
	}
	return metrics{tries: tries, refusals: refusals, ages: ages}, nil
}

func (m metrics) count(ctx context.Context, platform, outcome string) {
	m.tries.Add(ctx, 1, labels(platform, outcome))
}

func (m metrics) refused(ctx context.Context, platform string) {
	m.refusals.Add(ctx, 1, metric.WithAttributes(attribute.String("platform", platform)))
}

func (m metrics) age(ctx context.Context, platform, outcome string, age time.Duration) {
	m.ages.Record(ctx, age.Seconds(), labels(platform, outcome))
}

func labels(platform, outcome string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("platform", platform), attribute.String("outcome", outcome))
}
