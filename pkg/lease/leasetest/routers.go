package leasetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/lease"
)

func routerTests() map[string]func(t *testing.T, b Backend) {
	return map[string]func(t *testing.T, b Backend){
		"JoinReturnsAllLivingRoutersSorted": joinSorted,
		"ASilentRouterIsForgotten":          joinExpires,
		"LeaveRemovesRouterAndPartitions":   leave,
		"OwnTakesWhatIsFreeAndRenews":       own,
		"OwnedPartitionsExpire":             ownExpires,
		"DisownFreesOnlyOwnPartitions":      disown,
	}
}

func join(t *testing.T, b Backend, id string) []string {
	t.Helper()
	ids, err := b.Join(t.Context(), id)
	require.NoError(t, err)
	return ids
}

func ownAll(t *testing.T, b Backend, id string, partitions ...int) []bool {
	t.Helper()
	got, err := b.Own(t.Context(), id, partitions)
	require.NoError(t, err)
	return got
}

func joinSorted(t *testing.T, b Backend) {
	require.Equal(t, []string{"r2"}, join(t, b, "r2"))
	require.Equal(t, []string{"r1", "r2"}, join(t, b, "r1"))
	require.Equal(t, []string{"r1", "r2", "r3"}, join(t, b, "r3"))
	require.Equal(t, []string{"r1", "r2", "r3"}, join(t, b, "r2"))
}

func joinExpires(t *testing.T, b Backend) {
	join(t, b, "r1")
	join(t, b, "r2")
	b.Advance(lease.MemberTTL - tick)
	require.Equal(t, []string{"r1", "r2"}, join(t, b, "r1"))
	b.Advance(2 * tick)
	require.Equal(t, []string{"r1"}, join(t, b, "r1"))
	require.Equal(t, []string{"r1", "r2"}, join(t, b, "r2"))
}

func leave(t *testing.T, b Backend) {
	join(t, b, "r1")
	join(t, b, "r2")
	require.Equal(t, []bool{true, true}, ownAll(t, b, "r1", 0, 63))
	require.Equal(t, []bool{true}, ownAll(t, b, "r2", 7))
	require.NoError(t, b.Leave(t.Context(), "r1"))
	require.Equal(t, []string{"r3"}, without(join(t, b, "r3"), "r2"))
	require.Equal(t, []bool{true, true, false}, ownAll(t, b, "r3", 0, 63, 7))
	require.NoError(t, b.Leave(t.Context(), "never joined"))
}

func without(ids []string, id string) []string {
	var rest []string
	for _, x := range ids {
		if x != id {
			rest = append(rest, x)
		}
	}
	return rest
}

func own(t *testing.T, b Backend) {
	require.Equal(t, []bool{true, true}, ownAll(t, b, "r1", 3, 5))
	require.Equal(t, []bool{true, false, true}, ownAll(t, b, "r2", 4, 5, 6))
	b.Advance(lease.PartitionTTL - tick)
	require.Equal(t, []bool{true}, ownAll(t, b, "r1", 5))
	b.Advance(2 * tick)
	require.Equal(t, []bool{true, false}, ownAll(t, b, "r2", 3, 5), "3 was not renewed")
}

func ownExpires(t *testing.T, b Backend) {
	require.Equal(t, []bool{true}, ownAll(t, b, "r1", 3))
	b.Advance(lease.PartitionTTL - tick)
	require.Equal(t, []bool{false}, ownAll(t, b, "r2", 3))
	b.Advance(2 * tick)
	require.Equal(t, []bool{true}, ownAll(t, b, "r2", 3))
	require.Equal(t, []bool{false}, ownAll(t, b, "r1", 3))
}

func disown(t *testing.T, b Backend) {
	require.Equal(t, []bool{true, true}, ownAll(t, b, "r1", 3, 4))
	require.NoError(t, b.Disown(t.Context(), "r2", []int{3}))
	require.Equal(t, []bool{false}, ownAll(t, b, "r2", 3))
	require.NoError(t, b.Disown(t.Context(), "r1", []int{3}))
	require.Equal(t, []bool{true, false}, ownAll(t, b, "r2", 3, 4))
}

func serverTests() map[string]func(t *testing.T, b Backend) {
	return map[string]func(t *testing.T, b Backend){
		"BootChangesOnlyWhenTheDataIsLost": bootChanges,
		"IsReadyUntilClosed":               readyUntilClosed,
		"AnEndedContextIsUnavailable":      endedContext,
		"EvictionIsNotRefusedByDefault":    evictionDefault,
	}
}

func bootChanges(t *testing.T, b Backend) {
	boot := func() string {
		id, err := b.Boot(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, id)
		return id
	}
	first := boot()
	b.Advance(100 * lease.TTL)
	require.Equal(t, first, boot())
	b.Forget()
	second := boot()
	require.NotEqual(t, first, second)
	require.Equal(t, second, boot())
}

func readyUntilClosed(t *testing.T, b Backend) {
	require.NoError(t, b.Ready(t.Context()))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Ready(t.Context()), lease.ErrUnavailable)
	_, err := b.Acquire(t.Context(), []lease.Lease{held(1, "w1/n1")})
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.NoError(t, b.Close())
}

func endedContext(t *testing.T, b Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Renew(ctx, []lease.Lease{held(1, "w1/n1")})
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.Join(ctx, "r1")
	require.ErrorIs(t, err, lease.ErrUnavailable)
}

func evictionDefault(t *testing.T, b Backend) {
	_, err := b.CheckEviction(t.Context())
	require.NoError(t, err)
}
