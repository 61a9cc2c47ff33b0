package sweep

import (
	"math/bits"
	"time"
)

const (
	// minAge is how long a run may stay queued before it is rung again; the first ring is the admission's.
	minAge = 2 * time.Second
	// doubling is the age up to which every ring comes at twice the age of the one before it; then one per steady.
	doubling = 64 * time.Second
	steady   = 60 * time.Second
)

// bucket numbers the rings of a run by its age: floor(log2(age / 2 s)) up to 64 s, then one more every 60 s. The broker
// drops a second ring of one number, so that a backlog is not flooded.
func bucket(age time.Duration) int64 {
	switch {
	case age < minAge:
		return 0
	case age < doubling:
		return log2(age)
	default:
		return log2(doubling) + int64((age-doubling)/steady)
	}
}

func log2(age time.Duration) int64 { return int64(bits.Len64(uint64(age/minAge))) - 1 }
