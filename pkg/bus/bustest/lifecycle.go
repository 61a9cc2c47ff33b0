package bustest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

func lifecycleTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"EnsureStreamsKeepsWhatIsThere":  ensureAgain,
		"EnsureStreamsMayRunTwiceAtOnce": ensureTwiceAtOnce,
		"IsReadyUntilClosed":             readyUntilClosed,
		"CloseBreaksReaders":             closeBreaks,
		"StoresEventsAndDLQ":             storesEvents,
	}
}

func ensureTwiceAtOnce(t *testing.T, b bus.Bus) {
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = b.EnsureStreams(t.Context()) })
	}
	wg.Wait()
	require.Equal(t, make([]error, 4), errs)
}

func ensureAgain(t *testing.T, b bus.Bus) {
	publish(t, b, event(3, "a"))
	before, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.NoError(t, b.EnsureStreams(t.Context()))
	after, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func readyUntilClosed(t *testing.T, b bus.Bus) {
	require.NoError(t, b.Ready(t.Context()))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Ready(t.Context()), bus.ErrUnavailable)
	_, err := b.Publish(t.Context(), event(3, "a"))
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.NoError(t, b.Close())
}

func closeBreaks(t *testing.T, b bus.Bus) {
	r, _ := readLog(t, b, 1)
	require.NoError(t, b.Close())
	receive(t, r.Broken())
	require.ErrorIs(t, r.Err(), bus.ErrBroken)
	_, err := b.ReadLog(t.Context(), 3, 1, make(chan bus.Entry))
	require.ErrorIs(t, err, bus.ErrUnavailable)
}

func storesEvents(t *testing.T, b bus.Bus) {
	acks := publish(t, b,
		bus.Msg{Subject: bus.EventSubject("s0", "response_sent"), ID: "1"},
		bus.Msg{Subject: bus.DeadLetterSubject("run", tenant), ID: "1"})
	require.Equal(t, bus.StreamEvents, acks[0].Stream)
	require.Equal(t, bus.StreamDeadLetter, acks[1].Stream)
}
