package bustest

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

func objectTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"AnObjectMayBeLargerThanAMessage": largeObject,
		"PutReplacesAnObject":             replaceObject,
		"GetReportsAMissingObject":        missingObject,
	}
}

func largeObject(t *testing.T, b bus.Bus) {
	data := make([]byte, 3<<20+1)
	_, err := rand.Read(data)
	require.NoError(t, err)
	require.NoError(t, b.PutObject(t.Context(), "acme/a b:c/1", data))
	require.NoError(t, b.PutObject(t.Context(), "acme/a b:c/2", []byte("other")))
	got, err := b.GetObject(t.Context(), "acme/a b:c/1")
	require.NoError(t, err)
	require.Equal(t, data, got)
}

func replaceObject(t *testing.T, b bus.Bus) {
	require.NoError(t, b.PutObject(t.Context(), "o", []byte("one")))
	require.NoError(t, b.PutObject(t.Context(), "o", []byte("two")))
	got, err := b.GetObject(t.Context(), "o")
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
}

func missingObject(t *testing.T, b bus.Bus) {
	_, err := b.GetObject(t.Context(), "o")
	require.ErrorIs(t, err, bus.ErrNotFound)
	require.NoError(t, b.PutObject(t.Context(), "o", nil))
	got, err := b.GetObject(t.Context(), "o")
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = b.GetObject(t.Context(), "p")
	require.ErrorIs(t, err, bus.ErrNotFound)
}
