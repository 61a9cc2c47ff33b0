package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started, of CLOCK_BOOTTIME.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil { // every kernel since 2.6.39 has it
		panic("boottime: " + err.Error())
	}
	return time.Duration(t.Nano())
}
