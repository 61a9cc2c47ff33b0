package dispatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	// countEvery is how often the running sessions of tenants are counted.
	countEvery   = time.Second
	countTimeout = 5 * time.Second
	// lookupLimit bounds the runs that one count asks for; the others wait for their turn.
	lookupLimit = 256
)

// Sessions tell how many runs tenants have, and which of those that were dispatched are claimed.
type Sessions interface {
	RunningByTenant(ctx context.Context) (map[string]int, error)
	Session(ctx context.Context, skey string) (store.Session, error)
}

// tenants keeps one tenant from taking the workers of all: they take turns within a batch, and none is dispatched beyond
// its limit. What is left out is still queued, so the next sweep looks again.
//
// What counts is what the store says is running, once a second, and what this router has dispatched and nobody has
// claimed yet. So a limit holds within seconds, and not exactly: every router counts what it dispatches itself, and a
// worker that goes on with the next message of a session asks nobody.
type tenants struct {
	limits map[string]int

	mu      sync.Mutex
	running map[string]int
	// rung are the runs of tenants with a limit that were dispatched and that nobody is known to have claimed.
	rung map[string]map[uuid.UUID]Run
}

func newTenants(limits map[string]int) *tenants {
	return &tenants{limits: limits, rung: map[string]map[uuid.UUID]Run{}}
}

// turns returns the runs that may be dispatched, tenants in turn and each in the order given.
func (t *tenants) turns(runs []Run) []Run {
	var order []string
	byTenant := map[string][]Run{}
	for _, r := range runs {
		if _, known := byTenant[r.Tenant]; !known {
			order = append(order, r.Tenant)
		}
		byTenant[r.Tenant] = append(byTenant[r.Tenant], r)
	}
	if len(order) == 1 && t.limits[order[0]] == 0 {
		return runs
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tenant := range order {
		byTenant[tenant] = t.withinLimit(tenant, byTenant[tenant])
	}
	return deal(order, byTenant, len(runs))
}

// withinLimit lets runs pass that were dispatched before: they have their place already, and may have to be rung again.
func (t *tenants) withinLimit(tenant string, runs []Run) []Run {
	limit := t.limits[tenant]
	if limit == 0 {
		return runs
	}
	rung := t.rung[tenant]
	if rung == nil {
		rung = map[uuid.UUID]Run{}
		t.rung[tenant] = rung
	}
	room := limit - t.running[tenant] - len(rung)
	var within []Run
	for _, r := range runs {
		_, again := rung[r.RunID]
		switch {
		case again:
		case room > 0:
			room--
		default:
			continue
		}
		rung[r.RunID] = r
		within = append(within, r)
	}
	return within
}

// deal takes one run of each tenant after the other.
func deal(order []string, byTenant map[string][]Run, n int) []Run {
	dealt := make([]Run, 0, n)
	for round := 0; ; round++ {
		before := len(dealt)
		for _, tenant := range order {
			if round < len(byTenant[tenant]) {
				dealt = append(dealt, byTenant[tenant][round])
			}
		}
		if len(dealt) == before {
			return dealt
		}
	}
}

// open returns some of the runs that nobody is known to have claimed.
func (t *tenants) open() []Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	var open []Run
	for _, rung := range t.rung {
		open = slices.AppendSeq(open, maps.Values(rung))
	}
	return open[:min(len(open), lookupLimit)]
}

func (t *tenants) claimed(r Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rung[r.Tenant], r.RunID)
}

func (t *tenants) counted(running map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = running
}

// count keeps the counts of tenants with a limit current. While the store is down the last ones stay; the sweeper reports
// it.
func (d *Dispatcher) count(ctx context.Context) {
	for ; ; daemon.Sleep(ctx, countEvery) {
		call, cancel := context.WithTimeout(ctx, countTimeout)
		_ = d.tenants.recount(call, d.Sessions)
		cancel()
		if ctx.Err() != nil {
			return
		}
	}
}

// recount asks for what was dispatched first: what is claimed in between counts twice until the next time, never not at
// all.
func (t *tenants) recount(ctx context.Context, s Sessions) error {
	for _, r := range t.open() {
		session, err := s.Session(ctx, r.SKey)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case session.State == store.Queued && session.RunID == r.RunID:
			continue
		}
		t.claimed(r)
	}
	running, err := s.RunningByTenant(ctx)
	if err == nil {
		t.counted(running)
	}
	return err
}
