package ratelimit

// Len is how many buckets are kept.
func (l *Local) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buckets)
}

const (
	SweepAt     = sweepAt
	MaxBuckets  = maxBuckets
	RetryShared = retryShared
)
