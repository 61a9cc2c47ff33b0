package slot

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestRoom_GivesNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	r := newRoom(3)
	require.Equal(t, 2, r.take(2))
	require.Equal(t, 1, r.take(5))
	require.Equal(t, 0, r.take(1))
	require.Equal(t, 3, r.used())
	r.leave()
	require.Equal(t, 2, r.used())
	free, err := r.wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, free)
}

func TestRoom_WakesAllWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1)
		r.take(1)
		free := make(chan int, 2)
		for range 2 {
			go func() {
				if n, err := r.wait(t.Context()); err == nil {
					free <- n
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, free)
		r.leave()
		synctest.Wait()
		require.Len(t, free, 2)
	})
}

func TestRoom_WaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRoom(1)
	r.take(1)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := r.wait(ctx)
	require.ErrorIs(t, err, gone)
}
