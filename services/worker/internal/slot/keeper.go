package slot

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/batch"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
)

const (
	// leaseLimit is how many leases go in one pipeline.
	leaseLimit   = 500
	leaseTimeout = 2 * time.Second
	// renewStep is how often the keeper looks for leases that are due.
	renewStep = 250 * time.Millisecond
	// renewSoon is when a lease is asked for again whose run could not be reclaimed at once.
	renewSoon = time.Second
)

// keeper holds the leases of all runs in hand. Three loops serve them: one renews, one reclaims the runs whose leases
// Redis has forgotten, and one takes and gives back leases in the pipelines of all slots.
type keeper struct {
	keeperDeps
	takes *batch.Queue[lease.Lease, bool]
	gives *batch.Queue[lease.Lease, struct{}]

	mu   sync.Mutex
	kept map[*control.Handle]*keep
	// forgotten wait to be reclaimed; wake has one element when there are any.
	forgotten []*keep
	wake      chan struct{}
	// down: the last renewal found no Redis; only the edges are logged.
	down bool
}

type keeperDeps struct {
	leases  lease.Sessions
	store   reclaimStore
	metrics *Metrics
	logger  *slog.Logger
	clock   boottime.Clock
	// newOwner returns an owner with a new nonce.
	newOwner func() string
}

// keep is a lease that is renewed until its run is dropped or overdue.
type keep struct {
	handle *control.Handle
	next   time.Time
	// reclaiming: it is on its way to a new generation.
	reclaiming bool
}

func newKeeper(deps keeperDeps) *keeper {
	k := &keeper{keeperDeps: deps, kept: map[*control.Handle]*keep{}, wake: make(chan struct{}, 1)}
	k.takes = batch.NewQueue(leaseLimit, func(ctx context.Context, leases []lease.Lease) ([]bool, error) {
		return k.acquire(ctx, leases), nil
	})
	k.gives = batch.NewQueue(leaseLimit, func(ctx context.Context, leases []lease.Lease) ([]struct{}, error) {
		return make([]struct{}, len(leases)), k.releaseAll(ctx, leases)
	})
	return k
}

// leaseOf is the lease of the run that a fence names.
func leaseOf(f store.Fence) lease.Lease {
	return lease.Lease{SKey: f.SKey, Gen: f.Gen, RunID: f.RunID.String(), Holder: f.Owner}
}

func leasesOf(batch []*keep) []lease.Lease {
	leases := make([]lease.Lease, len(batch))
	for i, kept := range batch {
		leases[i] = leaseOf(kept.handle.Fence())
	}
	return leases
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

func (k *keeper) releaseAll(ctx context.Context, leases []lease.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	return k.leases.Release(ctx, leases)
}

// take is acquire for one slot, in a pipeline with others. Once the worker ends nothing is taken any more.
func (k *keeper) take(ctx context.Context, l lease.Lease) bool {
	taken, err := k.takes.Do(ctx, l)
	return err == nil && taken
}

// free gives l back. A release that is lost only delays the next owner by the lease's time.
func (k *keeper) free(ctx context.Context, l lease.Lease) {
	// The run has ended, perhaps because its context has.
	if _, err := k.gives.Do(context.WithoutCancel(ctx), l); err != nil {
		k.logger.DebugContext(ctx, "lease not released", "skey", l.SKey, "gen", l.Gen, "err", err)
	}
}

// hold begins to renew the lease of h, the first time somewhere within the period, so that leases that were taken
// together are not renewed together. If it turns out to be somebody else's, h is fenced.
func (k *keeper) hold(h *control.Handle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[h] = &keep{handle: h, next: time.Now().Add(rand.N(lease.Renewal))}
}

// forget stops to renew the lease of h, which one of a higher generation is about to replace.
func (k *keeper) forget(h *control.Handle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, h)
}

// release gives the lease of h back.
func (k *keeper) release(ctx context.Context, h *control.Handle) {
	k.forget(h)
	k.free(ctx, leaseOf(h.Fence()))
}

// serve sends what the slots take and give.
func (k *keeper) serve(ctx context.Context) {
	defer k.takes.Close()
	defer k.gives.Close()
	for {
		select {
		case call := <-k.takes.Ready():
			k.takes.Flush(ctx, call)
		case call := <-k.gives.Ready():
			k.gives.Flush(ctx, call)
		case <-ctx.Done():
			return
		}
	}
}

func (k *keeper) renewals(ctx context.Context) {
	ticker := time.NewTicker(renewStep)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.renewDue(ctx, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// renewDue renews in pipelines. After an error the others are left to their next turn: they would only wait for it, too.
func (k *keeper) renewDue(ctx context.Context, now time.Time) {
	for batch := range slices.Chunk(k.due(now), leaseLimit) {
		if !k.renew(ctx, batch) {
			return
		}
	}
}

// due returns the leases whose time has come. The next time is drawn from the end of the period, so that leases which
// have fallen into step part again.
func (k *keeper) due(now time.Time) []*keep {
	k.mu.Lock()
	defer k.mu.Unlock()
	var due []*keep
	for _, kept := range k.kept {
		if kept.reclaiming || now.Before(kept.next) || kept.handle.Overdue() {
			continue
		}
		kept.next = now.Add(lease.Renewal - rand.N(lease.Renewal/5))
		due = append(due, kept)
	}
	return due
}

// renew reports whether Redis has answered.
func (k *keeper) renew(ctx context.Context, batch []*keep) bool {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	start, at := time.Now(), k.clock()
	results, err := k.leases.Renew(ctx, leasesOf(batch))
	k.metrics.renewals.Record(ctx, time.Since(start).Seconds())
	k.edge(ctx, err)
	if err != nil { // it says nothing about any lease: the store confirms the runs meanwhile
		return false
	}
	var absent []*keep
	for i, kept := range batch {
		switch results[i] {
		case lease.Held:
			kept.handle.Confirm(at)
		case lease.Lost:
			k.lost(ctx, kept)
		case lease.Absent:
			absent = append(absent, kept)
		}
	}
	k.reclaimLater(absent)
	return true
}

// lost ends a run that is somebody else's.
func (k *keeper) lost(ctx context.Context, kept *keep) {
	if !k.holds(kept) { // it was given back meanwhile
		return
	}
	f := kept.handle.Fence()
	k.logger.WarnContext(ctx, "lease lost", "skey", f.SKey, "gen", f.Gen, "run_id", f.RunID)
	kept.handle.Lose()
	k.forget(kept.handle)
}

func (k *keeper) holds(kept *keep) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[kept.handle] == kept
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
