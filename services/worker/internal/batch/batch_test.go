package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// serve runs the loop that a Queue needs, until the test ends.
func serve[T, R any](t *testing.T, q *Queue[T, R]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer q.Close()
		for {
			select {
			case c := <-q.Ready():
				q.Flush(ctx, c)
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func TestQueue_TakesWhatQueuedUpDuringARoundTripAsOneBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		q := NewQueue(4, func(_ context.Context, items []int) ([]int, error) {
			sizes = append(sizes, len(items))
			<-time.After(time.Second) // a round trip in virtual time
			doubled := make([]int, len(items))
			for i, n := range items {
				doubled[i] = 2 * n
			}
			return doubled, nil
		})
		serve(t, q)
		var wg sync.WaitGroup
		call := func(n int) {
			wg.Go(func() {
				got, err := q.Do(t.Context(), n)
				require.NoError(t, err)
				require.Equal(t, 2*n, got)
			})
		}
		call(0)
		synctest.Wait()
		for n := 1; n <= 6; n++ {
			call(n)
		}
		wg.Wait()
		require.Equal(t, []int{1, 4, 2}, sizes)
	})
}

func TestQueue_SendsAgainWhileTheStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		q := NewQueue(4, func(_ context.Context, items []string) ([]string, error) {
			if tries++; tries < 5 {
				return nil, fmt.Errorf("finish: %w", store.ErrUnavailable)
			}
			return items, nil
		})
		serve(t, q)
		got, err := q.Do(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "a", got)
		require.Equal(t, 5, tries)
	})
}

func TestQueue_GivesUpWhenTheCallerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(4, func(context.Context, []int) ([]int, error) { return nil, store.ErrUnavailable })
		serve(t, q)
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, gone)
		defer cancel()
		_, err := q.Do(ctx, 1)
		require.ErrorIs(t, err, gone)
	})
}

func TestQueue_OnlyTheGuiltyItemFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := true
		q := NewQueue(8, func(_ context.Context, items []int) ([]int, error) {
			if busy {
				busy = false
				<-time.After(time.Second)
			}
			for _, n := range items {
				if n == 3 {
					return nil, store.ErrRejected
				}
			}
			return items, nil
		})
		serve(t, q)
		errs := make([]error, 6)
		var wg sync.WaitGroup
		for n := range errs {
			wg.Go(func() { _, errs[n] = q.Do(t.Context(), n) })
			synctest.Wait()
		}
		wg.Wait()
		for n, err := range errs {
			if n == 3 {
				require.ErrorIs(t, err, store.ErrRejected)
				continue
			}
			require.NoError(t, err)
		}
	})
}

func TestQueue_RefusesItemsOnceItIsStopped(t *testing.T) {
	t.Parallel()
	q := NewQueue(4, func(_ context.Context, items []int) ([]int, error) { return items, nil })
	q.Close()
	_, err := q.Do(t.Context(), 1)
	require.ErrorIs(t, err, ErrStopped)
}
