package slot

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
)

const (
	renewLimit   = 500
	leaseTimeout = 2 * time.Second
)

// keeper holds the leases of all runs in hand and renews them from one ticker.
type keeper struct {
	leases  lease.Sessions
	logger  *slog.Logger
	latency metric.Float64Histogram

	mu   sync.Mutex
	kept map[lease.Lease]*keep
	// down: the last renewal found no Redis; only the edges are logged.
	down bool
}

// keep is a lease that is renewed until it is dropped or, if until is set, until then.
type keep struct {
	lease  lease.Lease
	handle *control.Handle
	until  time.Time
}

func newKeeper(l lease.Sessions, logger *slog.Logger, latency metric.Float64Histogram) *keeper {
	return &keeper{leases: l, logger: logger, latency: latency, kept: map[lease.Lease]*keep{}}
}

// acquire takes leases in one pipeline. Without Redis every lease counts as taken: the claim decides alone.
func (k *keeper) acquire(ctx context.Context, leases []lease.Lease) []bool {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	taken := make([]bool, len(leases))
	grants, err := k.leases.Acquire(ctx, leases)
	if err != nil {
		k.logger.WarnContext(ctx, "starting without leases", "count", len(leases), "err", err)
	}
	for i := range leases {
		taken[i] = err != nil || grants[i].OK
	}
	return taken
}

// hold begins to renew l. If it turns out to be somebody else's, h is fenced.
func (k *keeper) hold(l lease.Lease, h *control.Handle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[l] = &keep{lease: l, handle: h}
}

// limit ends the renewal of l at until, so that a run that hangs can be taken over.
func (k *keeper) limit(l lease.Lease, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if kept := k.kept[l]; kept != nil {
		kept.until = until
	}
}

// forget stops to renew l, which a lease of a higher generation is about to replace.
func (k *keeper) forget(l lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, l)
}

// release gives l back. A release that is lost only delays the next owner by the lease's time.
func (k *keeper) release(ctx context.Context, l lease.Lease) {
	k.forget(l)
	// The run has ended, perhaps because its context has.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	if err := k.leases.Release(ctx, []lease.Lease{l}); err != nil {
		k.logger.DebugContext(ctx, "lease not released", "skey", l.SKey, "gen", l.Gen, "err", err)
	}
}

func (k *keeper) run(ctx context.Context) {
	ticker := time.NewTicker(lease.Renewal)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			for batch := range slices.Chunk(k.due(now), renewLimit) {
				k.renew(ctx, batch)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (k *keeper) due(now time.Time) []*keep {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := make([]*keep, 0, len(k.kept))
	for _, kept := range k.kept {
		if kept.until.IsZero() || now.Before(kept.until) {
			due = append(due, kept)
		}
	}
	return due
}

func (k *keeper) renew(ctx context.Context, batch []*keep) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	start := time.Now()
	results, err := k.leases.Renew(ctx, leasesOf(batch))
	k.latency.Record(ctx, time.Since(start).Seconds())
	k.edge(ctx, err)
	if err != nil { // it says nothing about any lease: go on, the fence in the store protects
		return
	}
	var absent []*keep
	for i, kept := range batch {
		switch results[i] {
		case lease.Lost:
			k.lost(ctx, kept)
		case lease.Absent:
			absent = append(absent, kept)
		case lease.Held:
		}
	}
	k.restore(ctx, absent)
}

func (k *keeper) lost(ctx context.Context, kept *keep) {
	if !k.holds(kept) { // it was given back meanwhile
		return
	}
	k.logger.WarnContext(ctx, "lease lost", "skey", kept.lease.SKey, "gen", kept.lease.Gen, "run_id", kept.lease.RunID)
	kept.handle.Lose()
	k.forget(kept.lease)
}

// restore takes leases that Redis forgot again, under the same generation. That is no proof of anything: another worker
// may have begun a higher generation meanwhile, which refuses this one and fences its writes.
func (k *keeper) restore(ctx context.Context, absent []*keep) {
	var still []*keep
	for _, kept := range absent {
		if k.holds(kept) {
			still = append(still, kept)
		}
	}
	if len(still) == 0 {
		return
	}
	grants, err := k.leases.Acquire(ctx, leasesOf(still))
	if err != nil {
		k.edge(ctx, err)
		return
	}
	for i, kept := range still {
		if !grants[i].OK && grants[i].Held.Gen > kept.lease.Gen {
			k.lost(ctx, kept)
		}
	}
	k.logger.WarnContext(ctx, "leases were forgotten and taken again", "count", len(still))
}

func (k *keeper) holds(kept *keep) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[kept.lease] == kept
}

func (k *keeper) edge(ctx context.Context, err error) {
	k.mu.Lock()
	was := k.down
	k.down = err != nil
	k.mu.Unlock()
	switch {
	case err != nil && !was:
		k.logger.WarnContext(ctx, "leases cannot be renewed", "err", err)
	case err == nil && was:
		k.logger.InfoContext(ctx, "leases are renewed again")
	}
}

func leasesOf(batch []*keep) []lease.Lease {
	leases := make([]lease.Lease, len(batch))
	for i, kept := range batch {
		leases[i] = kept.lease
	}
	return leases
}
