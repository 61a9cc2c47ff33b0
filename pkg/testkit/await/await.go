// Package await polls until something becomes true, so that tests of real servers need no sleep.
package await

import (
	"fmt"
	"testing"
	"time"
)

const interval = 5 * time.Millisecond

// True polls cond until it holds; after timeout the test fails at once with msg, a format and its arguments.
func True(tb testing.TB, timeout time.Duration, cond func() bool, msg ...any) {
	tb.Helper()
	if !poll(tb, timeout, cond) {
		tb.Fatalf("not true within %v: %s", timeout, format(msg))
	}
}

// NoError polls f until it returns nil; after timeout the test fails at once with the last error.
func NoError(tb testing.TB, timeout time.Duration, f func() error, msg ...any) {
	tb.Helper()
	var last error
	if !poll(tb, timeout, func() bool { last = f(); return last == nil }) {
		tb.Fatalf("error still there after %v: %v %s", timeout, last, format(msg))
	}
}

// poll calls cond at least once, and for the last time after the deadline, so that a slow machine gets a fair answer.
func poll(tb testing.TB, timeout time.Duration, cond func() bool) bool {
	tb.Helper()
	deadline := time.Now().Add(timeout)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		late := time.Now().After(deadline)
		if cond() {
			return true
		}
		if late {
			return false
		}
		<-ticker.C
	}
}

func format(msg []any) string {
	if len(msg) == 0 {
		return ""
	}
	if f, ok := msg[0].(string); ok {
		return fmt.Sprintf(f, msg[1:]...)
	}
	return fmt.Sprint(msg...)
}
