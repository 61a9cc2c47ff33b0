package redislease

import (
	"context"
	"slices"

	"github.com/hermes-runtime/hermes/pkg/lease"
)

// Join implements lease.Routers.
func (l *Leases) Join(ctx context.Context, routerID string) ([]string, error) {
	calls := []call{{routersKey, []any{routerID, lease.MemberTTL.Milliseconds()}}}
	answers, err := l.runAll(ctx, l.scripts.join, calls)
	if err != nil {
		return nil, unavailable("join routers", err)
	}
	members, _ := answers[0].([]any)
	ids := make([]string, 0, len(members))
	for _, m := range members {
		if id, ok := m.(string); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Leave implements lease.Routers.
func (l *Leases) Leave(ctx context.Context, routerID string) error {
	if err := l.client.ZRem(ctx, routersKey, routerID).Err(); err != nil {
		return unavailable("leave routers", err)
	}
	return l.Disown(ctx, routerID, allPartitions())
}

// Own implements lease.Routers.
func (l *Leases) Own(ctx context.Context, routerID string, partitions []int) ([]bool, error) {
	answers, err := l.runAll(ctx, l.scripts.own, partitionCalls(partitions, routerID, lease.PartitionTTL.Milliseconds()))
	if err != nil {
		return nil, unavailable("own partitions", err)
	}
	own := make([]bool, len(partitions))
	for i, a := range answers {
		own[i] = a == int64(1)
	}
	return own, nil
}

// Disown implements lease.Routers.
func (l *Leases) Disown(ctx context.Context, routerID string, partitions []int) error {
	_, err := l.runAll(ctx, l.scripts.release, partitionCalls(partitions, routerID))
	return unavailable("disown partitions", err)
}

func partitionCalls(partitions []int, args ...any) []call {
	calls := make([]call, len(partitions))
	for i, p := range partitions {
		calls[i] = call{partitionKey(p), args}
	}
	return calls
}
