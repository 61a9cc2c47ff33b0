package backends

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
)

func TestLateAliases_AnswerOnceTheStoreIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		late := newLateAliases(slog.New(slog.DiscardHandler), func(context.Context) (closingAliases, error) {
			if !up.Load() {
				return nil, errors.New("connection refused")
			}
			return memstore.New(), nil
		})
		late.start(t.Context())
		synctest.Wait()
		address := store.Address{Tenant: "t", Platform: "telegram", Account: "1", ID: "-1002"}
		_, err := late.ResolveAliases(t.Context(), []store.Address{address})
		require.ErrorIs(t, err, store.ErrUnavailable)
		_, err = late.LearnAlias(t.Context(), address, "-2")
		require.ErrorIs(t, err, store.ErrUnavailable)

		up.Store(true)
		require.Eventually(t, func() bool {
			_, err := late.LearnAlias(t.Context(), address, "-2")
			return err == nil
		}, 2*lastRetry, firstRetry)
		ids, err := late.ResolveAliases(t.Context(), []store.Address{address})
		require.NoError(t, err)
		require.Equal(t, []string{"-2"}, ids)
		require.NoError(t, late.close())
	})
}

func TestLateAliases_EndWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := newLateAliases(slog.New(slog.DiscardHandler), func(context.Context) (closingAliases, error) {
			return nil, errors.New("connection refused")
		})
		late.start(t.Context())
		synctest.Wait()
		require.NoError(t, late.close())
	})
}
