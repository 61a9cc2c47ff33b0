package daemon_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/daemon"
)

func TestSleep_EndsWithItsTimeOrItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		require.True(t, daemon.Sleep(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(begin))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, daemon.Sleep(ctx, time.Hour))
		require.Equal(t, time.Minute+time.Second, time.Since(begin))
		require.False(t, daemon.Sleep(ctx, 0), "a loop without a pause ends too")
		require.True(t, daemon.Sleep(t.Context(), -time.Second))
	})
}
