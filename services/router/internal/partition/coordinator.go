package partition

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/lease"
)

// Owner reads the partitions that this router owns.
type Owner interface {
	// Own makes exactly these partitions the ones that are read. It returns when nothing more is committed for those that
	// were dropped, or when ctx ends.
	Own(ctx context.Context, partitions []int)
}

const (
	// handOver bounds the wait for the batch in hand before partitions are given up; a later commit is refused anyway.
	handOver = time.Second
	// redisTimeout bounds one heartbeat.
	redisTimeout = lease.PartitionRenewal
)

// Config of a Coordinator.
type Config struct {
	RouterID string
	// Renewal is the heartbeat; it must be well under lease.PartitionTTL.
	Renewal time.Duration
}

// Deps of a Coordinator.
type Deps struct {
	Leases lease.Routers
	Owner  Owner
	Logger *slog.Logger
}

// Coordinator keeps this router's share of the partitions. It is a daemon.Component.
type Coordinator struct {
	Config
	Deps
	loops daemon.Loops

	mu    sync.Mutex
	owned []int
	// assigned: partitions were given out once, by Redis or for want of it.
	assigned bool
	// alone: the last round did not reach Redis.
	alone bool
}

// New returns a coordinator that owns nothing until it is started.
func New(cfg Config, deps Deps) *Coordinator {
	return &Coordinator{Config: cfg, Deps: deps}
}

// Owned returns the partitions that this router owns now, in ascending order.
func (c *Coordinator) Owned() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.owned)
}

// Start takes a first share and goes on every Renewal.
func (c *Coordinator) Start(ctx context.Context) error {
	c.round(ctx)
	c.loops.Go(ctx, c.run)
	return nil
}

// Stop stops reading, then leaves, so that the others take over with their next heartbeat.
func (c *Coordinator) Stop(ctx context.Context) error {
	if err := c.loops.Stop(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	joined := c.assigned
	c.assigned = false
	c.mu.Unlock()
	if !joined {
		return nil
	}
	c.apply(ctx, nil)
	if err := c.Leases.Leave(ctx, c.RouterID); err != nil {
		// Not an error of the stop: the entry ends by itself.
		c.Logger.WarnContext(ctx, "router could not leave", "ttl", lease.MemberTTL, "err", err)
	}
	return nil
}

func (c *Coordinator) run(ctx context.Context) {
	ticker := time.NewTicker(c.Renewal)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.round(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// round is one heartbeat.
func (c *Coordinator) round(ctx context.Context) {
	wanted, own, err := c.ask(ctx)
	switch {
	case err == nil:
		c.share(ctx, wanted, own)
	case ctx.Err() == nil: // else: stopping
		c.keep(ctx, err)
	}
}

// ask announces this router and returns the partitions that it should have and those of them that it got.
func (c *Coordinator) ask(ctx context.Context) (wanted, own []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	routers, err := c.Leases.Join(ctx, c.RouterID)
	if err != nil {
		return nil, nil, fmt.Errorf("join the routers: %w", err)
	}
	wanted = Wanted(routers, c.RouterID)
	if len(wanted) == 0 {
		return nil, nil, nil
	}
	got, err := c.Leases.Own(ctx, c.RouterID, wanted)
	if err != nil {
		return nil, nil, fmt.Errorf("own %d partitions: %w", len(wanted), err)
	}
	for i, p := range wanted {
		if got[i] {
			own = append(own, p)
		}
	}
	return wanted, own, nil
}

// share reads what is owned and gives up what another router should have.
func (c *Coordinator) share(ctx context.Context, wanted, own []int) {
	if edge, _ := c.reached(true); edge {
		c.Logger.InfoContext(ctx, "redis available again, partitions are shared out")
	}
	unwanted := without(c.Owned(), wanted)
	c.apply(ctx, own)
	if len(unwanted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := c.Leases.Disown(ctx, c.RouterID, unwanted); err != nil {
		c.Logger.WarnContext(ctx, "partitions not given up, they end by themselves", "ttl", lease.PartitionTTL, "err", err)
	}
}

// keep goes on without Redis: with what is owned, or with everything if nothing was ever assigned.
func (c *Coordinator) keep(ctx context.Context, err error) {
	edge, first := c.reached(false)
	if edge || first {
		c.Logger.WarnContext(ctx, "redis unavailable, partitions are kept", "take_all", first, "err", err)
	}
	if first {
		c.apply(ctx, All())
	}
}

// reached notes whether Redis answered. edge: it is the opposite of last time; first: nothing was assigned before.
func (c *Coordinator) reached(ok bool) (edge, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	edge, first = c.assigned && c.alone == ok, !c.assigned
	c.alone, c.assigned = !ok, true
	return edge, first
}

func (c *Coordinator) apply(ctx context.Context, partitions []int) {
	c.mu.Lock()
	before := c.owned
	c.owned = partitions
	c.mu.Unlock()
	if slices.Equal(before, partitions) {
		return
	}
	c.Logger.InfoContext(ctx, "partitions changed", "owned", len(partitions),
		"taken", without(partitions, before), "dropped", without(before, partitions))
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	c.Owner.Own(ctx, partitions)
}

// without returns the members of a that are not in b.
func without(a, b []int) []int {
	var rest []int
	for _, p := range a {
		if !slices.Contains(b, p) {
			rest = append(rest, p)
		}
	}
	return rest
}
