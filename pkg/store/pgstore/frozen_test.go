package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

func TestEndFrozen_EndsTheTransactionOfAProcessThatStandsStill(t *testing.T) {
	t.Parallel()
	url := database(t)
	s := open(t, url)
	frozen, idle := connect(t, url), connect(t, url)
	tx, err := frozen.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select 1`)
	require.NoError(t, err)

	n, err := s.EndFrozen(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Zero(t, n, "it may still go on")
	await.True(t, time.Minute, func() bool {
		n, err = s.EndFrozen(t.Context(), time.Millisecond)
		require.NoError(t, err)
		return n > 0
	})
	require.Equal(t, 1, n)
	_, err = tx.Exec(t.Context(), `select 1`)
	require.Error(t, err)
	require.NoError(t, idle.Ping(t.Context()), "who holds no transaction is left alone")
}
