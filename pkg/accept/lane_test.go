package accept

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLanes_VanishWhenNobodyIsInThem(t *testing.T) {
	t.Parallel()
	l := &lanes{byKey: map[string]*lane{}}
	leave, err := l.enter(t.Context(), "a")
	require.NoError(t, err)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.enter(gone, "a")
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, l.byKey, 1)

	leave()
	require.Empty(t, l.byKey)
}
