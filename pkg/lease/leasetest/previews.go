package leasetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/lease"
)

func previewTests() map[string]func(t *testing.T, b Backend) {
	return map[string]func(t *testing.T, b Backend){
		"APreviewBelongsToWhoHoldsItFirst":  previewExclusive,
		"APreviewEndsAfterItsTTL":           previewExpires,
		"HoldingAPreviewAgainExtendsIt":     previewExtends,
		"OnlyTheHolderDropsAPreview":        previewDropped,
		"AForgottenPreviewIsFree":           previewForgotten,
		"PreviewsAndLeasesAreIndependent":   previewAndLease,
		"PreviewsOfSessionsAreIndependent":  previewsIndependent,
		"AnUnavailablePreviewIsNoStatement": previewUnavailable,
	}
}

func hold(t *testing.T, b Backend, egressID string) bool {
	t.Helper()
	ok, err := b.HoldPreview(t.Context(), skey, egressID)
	require.NoError(t, err)
	return ok
}

func previewHolder(t *testing.T, b Backend) string {
	t.Helper()
	id, err := b.PreviewHolder(t.Context(), skey)
	require.NoError(t, err)
	return id
}

func previewExclusive(t *testing.T, b Backend) {
	require.Empty(t, previewHolder(t, b))
	require.True(t, hold(t, b, "e1"))
	require.False(t, hold(t, b, "e2"))
	require.Equal(t, "e1", previewHolder(t, b))
}

func previewExpires(t *testing.T, b Backend) {
	require.True(t, hold(t, b, "e1"))
	b.Advance(lease.PreviewTTL - tick)
	require.False(t, hold(t, b, "e2"), "asking for it does not take it")
	b.Advance(2 * tick)
	require.Empty(t, previewHolder(t, b))
	require.True(t, hold(t, b, "e2"))
}

func previewExtends(t *testing.T, b Backend) {
	require.True(t, hold(t, b, "e1"))
	b.Advance(lease.PreviewTTL - tick)
	require.True(t, hold(t, b, "e1"))
	b.Advance(lease.PreviewTTL - tick)
	require.Equal(t, "e1", previewHolder(t, b))
}

func previewDropped(t *testing.T, b Backend) {
	require.True(t, hold(t, b, "e1"))
	require.NoError(t, b.DropPreview(t.Context(), skey, "e2"))
	require.Equal(t, "e1", previewHolder(t, b))
	require.NoError(t, b.DropPreview(t.Context(), skey, "e1"))
	require.Empty(t, previewHolder(t, b))
	require.NoError(t, b.DropPreview(t.Context(), skey, "e1"), "an absent one")
}

func previewForgotten(t *testing.T, b Backend) {
	require.True(t, hold(t, b, "e1"))
	b.Forget()
	require.Empty(t, previewHolder(t, b))
	require.True(t, hold(t, b, "e2"))
}

func previewAndLease(t *testing.T, b Backend) {
	mine := held(5, "w1/n1")
	require.True(t, acquire(t, b, mine).OK)
	require.True(t, hold(t, b, "e1"))
	require.Equal(t, &mine, lookup(t, b))
	require.NoError(t, b.Release(t.Context(), []lease.Lease{mine}))
	require.Equal(t, "e1", previewHolder(t, b))
}

func previewsIndependent(t *testing.T, b Backend) {
	require.True(t, hold(t, b, "e1"))
	ok, err := b.HoldPreview(t.Context(), "other", "e2")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "e1", previewHolder(t, b))
}

func previewUnavailable(t *testing.T, b Backend) {
	require.NoError(t, b.Close())
	_, err := b.HoldPreview(t.Context(), skey, "e1")
	require.ErrorIs(t, err, lease.ErrUnavailable)
	_, err = b.PreviewHolder(t.Context(), skey)
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.ErrorIs(t, b.DropPreview(t.Context(), skey, "e1"), lease.ErrUnavailable)
}
