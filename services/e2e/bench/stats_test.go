package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantile_TakesTheNearestRank(t *testing.T) {
	t.Parallel()
	var sorted []time.Duration
	for i := range 100 {
		sorted = append(sorted, time.Duration(i+1))
	}
	require.Equal(t, time.Duration(50), quantile(sorted, 0.5))
	require.Equal(t, time.Duration(99), quantile(sorted, 0.99))
	require.Equal(t, time.Duration(100), quantile(sorted, 1))
	require.Equal(t, time.Duration(1), quantile(sorted, 0))
	require.Equal(t, time.Duration(2), quantile(sorted[:3], 0.5))
	require.Zero(t, quantile(nil, 0.5))
}

func TestSummarise_SortsACopy(t *testing.T) {
	t.Parallel()
	all := []time.Duration{3, 1, 2}
	require.Equal(t, timing{Count: 3, P50: 2, P99: 3}, summarise(all))
	require.Equal(t, []time.Duration{3, 1, 2}, all)
}

func TestPer_OfNothingIsZero(t *testing.T) {
	t.Parallel()
	require.Zero(t, per(3, 0))
	require.InDelta(t, 1.5, per(3, 2), 1e-9)
}
