package daemon

import (
	"context"
	"time"
)

// Sleep waits for d and reports whether ctx outlived it. A d that is not positive only looks whether ctx has ended, so
// that a loop which sleeps always ends with its context.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
