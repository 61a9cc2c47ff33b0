package bustest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

func kvTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"GetReturnsWhatWasPut":          kvGet,
		"GetReportsAMissingKey":         kvMissing,
		"PutWithAnOldRevisionConflicts": kvConflict,
		"BucketsAreSharedByName":        kvShared,
	}
}

func openKV(t *testing.T, b bus.Bus, bucket string) bus.KV {
	t.Helper()
	kv, err := b.OpenKV(t.Context(), bucket)
	require.NoError(t, err)
	return kv
}

func kvGet(t *testing.T, b bus.Bus) {
	kv := openKV(t, b, "engine")
	rev, err := kv.Put(t.Context(), "off.07", []byte("1"), 0)
	require.NoError(t, err)
	rev2, err := kv.Put(t.Context(), "off.07", []byte("2"), rev)
	require.NoError(t, err)
	require.Greater(t, rev2, rev)
	value, got, err := kv.Get(t.Context(), "off.07")
	require.NoError(t, err)
	require.Equal(t, "2", string(value))
	require.Equal(t, rev2, got)
}

func kvMissing(t *testing.T, b bus.Bus) {
	_, _, err := openKV(t, b, "engine").Get(t.Context(), "off.07")
	require.ErrorIs(t, err, bus.ErrNotFound)
}

func kvConflict(t *testing.T, b bus.Bus) {
	kv := openKV(t, b, "engine")
	rev, err := kv.Put(t.Context(), "k", []byte("1"), 0)
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), "k", []byte("2"), 0)
	require.ErrorIs(t, err, bus.ErrConflict)
	_, err = kv.Put(t.Context(), "k", []byte("2"), rev+1)
	require.ErrorIs(t, err, bus.ErrConflict)
	value, _, err := kv.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "1", string(value))
}

func kvShared(t *testing.T, b bus.Bus) {
	_, err := openKV(t, b, "one").Put(t.Context(), "k", []byte("1"), 0)
	require.NoError(t, err)
	value, _, err := openKV(t, b, "one").Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "1", string(value))
	_, _, err = openKV(t, b, "two").Get(t.Context(), "k")
	require.ErrorIs(t, err, bus.ErrNotFound)
}
