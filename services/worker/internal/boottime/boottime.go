// Package boottime is a clock that never stands still: it counts on while the machine is suspended or the process is
// stopped, and nobody can set it. Leases are judged by it, since they run out meanwhile.
package boottime

import "time"

// Clock returns the time since some fixed instant of the past. [Now] is the real one.
type Clock func() time.Duration
