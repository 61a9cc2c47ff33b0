package hold_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/services/internal/hold"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

func engineKV(t *testing.T) bus.KV {
	t.Helper()
	cfg := natsbus.Config{InProcess: natsserver.NewMemory(t), Streams: bus.DefaultConfig()}
	cfg.Streams.Memory = true
	b, err := natsbus.Connect(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	kv, err := b.OpenKV(t.Context(), bus.BucketEngine)
	require.NoError(t, err)
	return kv
}

func held(partition int) hold.Hold {
	return hold.Hold{
		Partition: partition, Reason: hold.ReasonWentBack, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Stream: "ING_0",
		Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Offset: 10, CopiedOffset: 30, UntilSeq: 30,
	}
}

func TestList_ShowsWhatIsHeldUntilItEnds(t *testing.T) {
	t.Parallel()
	kv := engineKV(t)
	none, err := hold.List(t.Context(), kv)
	require.NoError(t, err)
	require.Empty(t, none)

	require.NoError(t, hold.Put(t.Context(), kv, held(40), 0))
	require.NoError(t, hold.Put(t.Context(), kv, held(3), 0))
	holds, err := hold.List(t.Context(), kv)
	require.NoError(t, err)
	require.Equal(t, []hold.Hold{held(3), held(40)}, holds)

	_, revision, err := hold.Get(t.Context(), kv, 3)
	require.NoError(t, err)
	require.NoError(t, hold.End(t.Context(), kv, 3, revision))
	holds, err = hold.List(t.Context(), kv)
	require.NoError(t, err)
	require.Equal(t, []hold.Hold{held(40)}, holds)
}

func TestPut_HoldsAPartitionAgainThatWasHeldBefore(t *testing.T) {
	t.Parallel()
	kv := engineKV(t)
	require.NoError(t, hold.Put(t.Context(), kv, held(3), 0))
	_, revision, err := hold.Get(t.Context(), kv, 3)
	require.NoError(t, err)
	require.NoError(t, hold.End(t.Context(), kv, 3, revision))
	h, revision, err := hold.Get(t.Context(), kv, 3)
	require.NoError(t, err)
	require.Nil(t, h)
	require.ErrorIs(t, hold.Put(t.Context(), kv, held(3), revision-1), bus.ErrConflict)
	require.NoError(t, hold.Put(t.Context(), kv, held(3), revision))
}

func TestChoose_CountsOnceAndOnlyForWhatIsHeld(t *testing.T) {
	t.Parallel()
	kv := engineKV(t)
	require.ErrorIs(t, hold.Choose(t.Context(), kv, 3, hold.Store), hold.ErrNotHeld)
	require.NoError(t, hold.Put(t.Context(), kv, held(3), 0))
	require.ErrorIs(t, hold.Choose(t.Context(), kv, 3, "drop"), hold.ErrUnknownChoice)
	require.NoError(t, hold.Choose(t.Context(), kv, 3, hold.Store))
	require.ErrorIs(t, hold.Choose(t.Context(), kv, 3, hold.Answer), hold.ErrNotHeld)
	h, _, err := hold.Get(t.Context(), kv, 3)
	require.NoError(t, err)
	want := held(3)
	want.Choice = hold.Store
	require.Equal(t, want, *h)
}

func TestCovers_EndsAtTheSequenceAndWithTheStream(t *testing.T) {
	t.Parallel()
	h := held(3)
	require.True(t, h.Covers("ING_0", h.Created, 30))
	require.False(t, h.Covers("ING_0", h.Created, 31))
	require.False(t, h.Covers("ING_1", h.Created, 30))
	require.False(t, h.Covers("ING_0", h.Created.Add(time.Second), 30))
}
