package main

import (
	"math"
	"slices"
	"time"
)

// quantile returns the value that q of the sorted values do not exceed (nearest rank); 0 of nothing.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// timing sums durations up.
type timing struct {
	Count    int
	P50, P99 time.Duration
}

func summarise(all []time.Duration) timing {
	sorted := slices.Sorted(slices.Values(all))
	return timing{Count: len(sorted), P50: quantile(sorted, 0.5), P99: quantile(sorted, 0.99)}
}

// per divides by a count or a time; of nothing it is 0, not infinite.
func per(value, divisor float64) float64 {
	if divisor == 0 {
		return 0
	}
	return value / divisor
}
