package boottime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
)

func TestNow_RunsWithTime(t *testing.T) {
	t.Parallel()
	wall, boot := time.Now(), boottime.Now()
	<-time.After(50 * time.Millisecond)
	passed := boottime.Now() - boot
	require.GreaterOrEqual(t, passed, 50*time.Millisecond)
	require.LessOrEqual(t, passed, time.Since(wall))
}
