package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics of admission; the only labels are partitions and the reasons for which messages are ignored.
type metrics struct {
	admitted, duplicates, ignored, dead metric.Int64Counter
	// moved counts attachments that ended because another router committed, rewinds and overruns what attaching found.
	moved, rewinds, overruns metric.Int64Counter
	registration             metric.Registration

	mu   sync.Mutex
	lags map[int]int64
}

func newMetrics(meter metric.Meter, a *Admitter) (*metrics, error) {
	m := &metrics{}
	var errs []error
	counter := func(name, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	m.admitted = counter("hermes_admitted_total", "Messages stored in an inbox.")
	m.duplicates = counter("hermes_duplicates_total", "Messages that had been admitted before.")
	m.ignored = counter("hermes_ignored_total", "Messages that have no effect, such as edits of what was answered.")
	m.dead = counter("hermes_dead_letters_total", "Messages that can't be admitted and were parked.")
	m.moved = counter("hermes_offsets_moved_total", "Partitions that another router was found to read.")
	m.rewinds = counter("hermes_log_rewinds_total", "Partitions read again because their stream lost messages.")
	m.overruns = counter("hermes_log_overruns_total", "Partitions whose stream dropped messages behind the offset.")
	lag, err := meter.Int64ObservableGauge("hermes_admit_lag",
		metric.WithDescription("Stream messages behind the stored offset of a partition that has something to admit."))
	errs = append(errs, err)
	owned, err := meter.Int64ObservableGauge("hermes_partitions_owned",
		metric.WithDescription("Partitions that this router reads."))
	errs = append(errs, err)
	held, err := meter.Int64ObservableGauge("hermes_partitions_held",
		metric.WithDescription("Partitions that this router does not read until an operator has chosen what happens after Postgres went back."))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("admission metrics: %w", err)
	}
	m.registration, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(owned, a.owned())
		o.ObserveInt64(held, a.held())
		m.observeLags(o, lag)
		return nil
	}, lag, owned, held)
	if err != nil {
		return nil, fmt.Errorf("admission metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) setLags(lags map[int]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lags = lags
}

func (m *metrics) observeLags(o metric.Observer, lag metric.Int64Observable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, n := range m.lags {
		o.ObserveInt64(lag, n, metric.WithAttributes(attribute.String("partition", strconv.Itoa(p))))
	}
}

func (m *metrics) unregister() {
	// It only fails for a registration of another meter.
	_ = m.registration.Unregister()
}
