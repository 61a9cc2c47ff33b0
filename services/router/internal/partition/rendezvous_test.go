package partition_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/services/router/internal/partition"
)

func routers(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("router-%d", i)
	}
	return ids
}

func TestWanted_CoversEveryPartitionOnceAndEvenly(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 16; n++ {
		ids := routers(n)
		var all []int
		for _, id := range ids {
			mine := partition.Wanted(ids, id)
			fair := float64(session.Partitions) / float64(n)
			require.LessOrEqual(t, float64(len(mine)), 2.5*fair+2, "%d routers", n)
			require.NotEmpty(t, mine, "%d routers", n)
			all = append(all, mine...)
		}
		slices.Sort(all)
		require.Equal(t, partition.All(), all, "%d routers", n)
	}
}

func TestPreferred_DoesNotDependOnTheOrderOfRouters(t *testing.T) {
	t.Parallel()
	ids := routers(5)
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	for p := range session.Partitions {
		require.Equal(t, partition.Preferred(ids, p), partition.Preferred(reversed, p))
	}
	require.Empty(t, partition.Preferred(nil, 0))
}

func TestPreferred_MovesOnlyTheShareOfTheRouterThatComesOrGoes(t *testing.T) {
	t.Parallel()
	before, after := routers(4), routers(5)
	moved := 0
	for p := range session.Partitions {
		old, now := partition.Preferred(before, p), partition.Preferred(after, p)
		if old != now {
			require.Equal(t, "router-4", now, "a partition may only move to the new router")
			moved++
		}
	}
	require.Len(t, partition.Wanted(after, "router-4"), moved)
	require.Positive(t, moved)
}
