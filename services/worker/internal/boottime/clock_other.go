//go:build !linux

package boottime

import "time"

var start = time.Now() // never changed

// Now is the time since the process was started, of the monotonic clock: not every system counts a suspension in it.
func Now() time.Duration { return time.Since(start) }
