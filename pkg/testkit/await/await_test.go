package await_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// recorder stands in for the test that await fails.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// outcome runs f in a goroutine of its own, as Fatalf ends it.
func outcome(f func(tb testing.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.failed
}

func TestTrue_ReturnsAsSoonAsTheConditionHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		await.True(t, time.Minute, func() bool { return time.Since(start) >= time.Second })
		require.Less(t, time.Since(start), 2*time.Second)
	})
}

func TestTrue_FailsWithTheMessageAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := outcome(func(tb testing.TB) {
			tb.Helper()
			await.True(tb, time.Second, func() bool { return false }, "row %d", 7)
		})
		require.Equal(t, "not true within 1s: row 7", failed)
	})
}

func TestTrue_AsksAtLeastOnce(t *testing.T) {
	t.Parallel()
	await.True(t, 0, func() bool { return true })
}

func TestNoError_ReportsTheLastError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		await.NoError(t, time.Minute, func() error {
			if n++; n < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		require.Equal(t, 3, n)
		failed := outcome(func(tb testing.TB) {
			tb.Helper()
			await.NoError(tb, time.Second, func() error { return errors.New("still down") })
		})
		require.Contains(t, failed, "still down")
	})
}
