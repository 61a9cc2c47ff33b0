package slot

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/batch"
)

const (
	reclaimTimeout     = 5 * time.Second
	reclaimFirstWait   = 50 * time.Millisecond
	reclaimLongestWait = time.Second
)

// reclaimStore is the part of the store that reclaims runs.
type reclaimStore interface {
	Reclaim(ctx context.Context, rs []store.Reclaim) ([]store.Reclaimed, error)
	Stops(ctx context.Context, fences []store.Fence) ([]store.StopState, error)
}

// reclaiming is a run on its way to the next generation. Its writes are held off.
type reclaiming struct {
	*keep
	store.Reclaim
}

// reclaimLater passes leases that Redis has forgotten on to the loop that may wait for the store.
func (k *keeper) reclaimLater(absent []*keep) {
	if len(absent) == 0 {
		return
	}
	k.mu.Lock()
	for _, kept := range absent {
		kept.reclaiming = true
	}
	k.forgotten = append(k.forgotten, absent...)
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

func (k *keeper) takeForgotten() []*keep {
	k.mu.Lock()
	defer k.mu.Unlock()
	forgotten := k.forgotten
	k.forgotten = nil
	return forgotten
}

func (k *keeper) reclaims(ctx context.Context) {
	for {
		select {
		case <-k.wake:
			for some := range slices.Chunk(k.takeForgotten(), leaseLimit) {
				k.reclaim(ctx, some)
			}
		case <-ctx.Done():
			return
		}
	}
}

// reclaim gives runs whose lease is gone the next generation, in one statement, and takes leases for that. A lease is
// never revived: others may have seen that it was gone and have begun to take the run over, which the store decides here.
func (k *keeper) reclaim(ctx context.Context, some []*keep) {
	begun, later := k.begin(some)
	k.resume(later, renewSoon)
	if len(begun) == 0 {
		return
	}
	results, at, err := k.ask(ctx, begun)
	if err != nil && ctx.Err() == nil {
		k.logger.ErrorContext(ctx, "runs not reclaimed", "count", len(begun), "err", err)
	}
	var mine, others []*keep
	for i, r := range begun {
		fence := r.Fence
		switch {
		case err != nil: // as it was, and asked again
			others = append(others, r.keep)
		case results[i].Err != nil:
			k.lost(ctx, r.keep)
		default:
			fence.Gen, fence.Owner = results[i].Gen, r.Fresh
			r.handle.Confirm(at)
			mine = append(mine, r.keep)
		}
		r.handle.EndReclaim(fence)
	}
	if err == nil {
		k.metrics.reclaimed(ctx, len(mine), len(begun)-len(mine))
		k.logger.WarnContext(ctx, "leases were forgotten", "reclaimed", len(mine), "lost", len(begun)-len(mine))
	}
	k.retake(ctx, mine)
	k.resume(append(mine, others...), renewSoon)
}

// begin holds off the writes of runs that are still in hand. Those with a write on its way come later: it would find the
// run in the hands of the generation that is made here.
func (k *keeper) begin(some []*keep) (begun []reclaiming, later []*keep) {
	for _, kept := range some {
		if !k.holds(kept) {
			continue
		}
		fence, ok := kept.handle.BeginReclaim()
		if !ok {
			later = append(later, kept)
			continue
		}
		begun = append(begun, reclaiming{keep: kept, Reclaim: store.Reclaim{Fence: fence, Fresh: k.newOwner()}})
	}
	return begun, later
}

// ask repeats the question while the store is unavailable: writes could not be made meanwhile anyway. at is the instant
// before the last try.
func (k *keeper) ask(ctx context.Context, begun []reclaiming) (results []store.Reclaimed, at time.Duration, err error) {
	rs := make([]store.Reclaim, len(begun))
	for i, r := range begun {
		rs[i] = r.Reclaim
	}
	unsure := false
	for wait := reclaimFirstWait; ; wait = min(2*wait, reclaimLongestWait) {
		at = k.clock()
		results, err = k.try(ctx, rs, unsure)
		if !batch.Repeatable(err) || !daemon.Sleep(ctx, wait) {
			return results, at, err
		}
		unsure = true
	}
}

func (k *keeper) try(ctx context.Context, rs []store.Reclaim, unsure bool) ([]store.Reclaimed, error) {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	results, err := k.store.Reclaim(ctx, rs)
	if err == nil && unsure {
		err = k.recognise(ctx, rs, results)
	}
	return results, err
}

// recognise finds the runs that were not refused but reclaimed before, by a try whose answer was lost.
func (k *keeper) recognise(ctx context.Context, rs []store.Reclaim, results []store.Reclaimed) error {
	var refused []int
	var fences []store.Fence
	for i, r := range results {
		if !errors.Is(r.Err, store.ErrFenced) {
			continue
		}
		f := rs[i].Fence
		f.Gen, f.Owner = f.Gen+1, rs[i].Fresh
		refused, fences = append(refused, i), append(fences, f)
	}
	if len(fences) == 0 {
		return nil
	}
	states, err := k.store.Stops(ctx, fences)
	if err != nil {
		return err
	}
	for n, i := range refused {
		if states[n].Held {
			results[i] = store.Reclaimed{Gen: fences[n].Gen}
		}
	}
	return nil
}

// retake takes leases under the new generations. Whoever stands in the way with a higher one has fenced the run.
func (k *keeper) retake(ctx context.Context, mine []*keep) {
	mine = slices.DeleteFunc(slices.Clone(mine), func(kept *keep) bool { return !k.holds(kept) })
	if len(mine) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	at := k.clock()
	leases := leasesOf(mine)
	grants, err := k.leases.Acquire(ctx, leases)
	if err != nil { // the renewal finds that they are absent
		k.edge(ctx, err)
		return
	}
	for i, kept := range mine {
		switch {
		case grants[i].OK:
			kept.handle.Confirm(at)
		case grants[i].Held.Gen > leases[i].Gen:
			k.lost(ctx, kept)
		}
	}
}

// resume lets leases be renewed again, the first time after a while.
func (k *keeper) resume(some []*keep, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kept := range some {
		kept.reclaiming, kept.next = false, time.Now().Add(after)
	}
}
