package bustest

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

func publisherTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"StoresInOrderUnderRisingSequences":          publishStoresInOrder,
		"StoresOneIDOnce":                            publishStoresOneIDOnce,
		"StoresMessagesWithoutIDEachTime":            publishWithoutID,
		"RefusesWhatIsTooLargeAndGoesOn":             publishRefusesTooLarge,
		"KeepsHeadersAsTheyWereSent":                 publishKeepsHeaders,
		"ReportsAStreamThatDoesNotExist":             publishToNoStream,
		"SendsNothingOnceItsContextHasEnded":         publishEndsWithContext,
		"PublishAllKeepsOrder":                       publishAllKeepsOrder,
		"PublishAllReportsErrorsByMessage":           publishAllReportsErrors,
		"PublishAllOfLazyMessagesKeepsOrder":         publishAllLazy,
		"PublishAllOfLazyMessagesReportsErrors":      publishAllLazyReportsErrors,
		"PublishAllOfNothingIsNothing":               publishAllOfNothing,
		"PublishAllCountsARepeatedIDAsSuccess":       publishAllRepeated,
		"PublishLeavesTheMessageOfTheCallerUnharmed": publishLeavesMessage,
	}
}

func publishStoresInOrder(t *testing.T, b bus.Bus) {
	acks := publish(t, b, event(3, "a"), event(3, "b"), event(4, "c"))
	require.Less(t, acks[0].Seq, acks[1].Seq)
	require.Less(t, acks[1].Seq, acks[2].Seq)
	require.Equal(t, bus.IngestStream(3, 1), acks[0].Stream)
	_, out := readLog(t, b, acks[0].Seq)
	require.Equal(t, "a", receive(t, out).ID)
	require.Equal(t, "b", receive(t, out).ID)
}

func publishStoresOneIDOnce(t *testing.T, b bus.Bus) {
	acks := publish(t, b, event(3, "a"), event(3, "a"), event(3, "b"))
	require.False(t, acks[0].Duplicate)
	require.True(t, acks[1].Duplicate)
	require.Equal(t, acks[0].Seq, acks[1].Seq)
	require.Equal(t, acks[0].Seq+1, acks[2].Seq)
}

func publishWithoutID(t *testing.T, b bus.Bus) {
	acks := publish(t, b, event(3, ""), event(3, ""))
	require.Equal(t, acks[0].Seq+1, acks[1].Seq)
}

func publishRefusesTooLarge(t *testing.T, b bus.Bus) {
	large := event(3, "large")
	large.Data = tooLarge()
	_, err := b.Publish(t.Context(), large)
	require.ErrorIs(t, err, bus.ErrTooLarge)
	require.Len(t, publish(t, b, event(3, "small")), 1)
	_, out := readLog(t, b, 1)
	require.Equal(t, "small", receive(t, out).ID)
}

func publishKeepsHeaders(t *testing.T, b bus.Bus) {
	m := event(3, "a")
	m.Header = bus.Header{"traceparent": {"00-1"}, "X-Many": {"1", "2"}}
	publish(t, b, m)
	_, out := readLog(t, b, 1)
	got := receive(t, out)
	require.Equal(t, m.Header, got.Header)
	require.Equal(t, m.Data, got.Data)
	require.Equal(t, m.Subject, got.Subject)
	require.Empty(t, got.Reply)
}

func publishToNoStream(t *testing.T, b bus.Bus) {
	ctx, cancel := shortly(t)
	defer cancel()
	_, err := b.Publish(ctx, bus.Msg{Subject: "nobody.stores.this", ID: "a"})
	require.ErrorIs(t, err, bus.ErrUnavailable)
}

func publishEndsWithContext(t *testing.T, b bus.Bus) {
	_, err := b.Publish(cancelled(t), event(3, "a"))
	require.ErrorIs(t, err, context.Canceled)
	info, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Zero(t, info.LastSeq)
}

func publishAllKeepsOrder(t *testing.T, b bus.Bus) {
	const n = 500
	msgs := make([]bus.Msg, n)
	for i := range msgs {
		msgs[i] = event(3, strconv.Itoa(i))
	}
	errs := b.PublishAll(t.Context(), msgs)
	require.Len(t, errs, n)
	for i, err := range errs {
		require.NoError(t, err, i)
	}
	_, out := readLog(t, b, 1)
	for i := range n {
		require.Equal(t, strconv.Itoa(i), receive(t, out).ID)
	}
}

func publishAllReportsErrors(t *testing.T, b bus.Bus) {
	large := event(3, "large")
	large.Data = tooLarge()
	errs := b.PublishAll(t.Context(), []bus.Msg{event(3, "a"), large, event(3, "b")})
	require.Len(t, errs, 3)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], bus.ErrTooLarge)
	require.NoError(t, errs[2])
	_, out := readLog(t, b, 1)
	require.Equal(t, "a", receive(t, out).ID)
	require.Equal(t, "b", receive(t, out).ID)
}

func publishAllLazy(t *testing.T, b bus.Bus) {
	const n = 500
	msgs := make([]bus.Msg, n)
	for i := range msgs {
		msgs[i] = event(3, strconv.Itoa(i))
		msgs[i].Lazy = true
	}
	require.Equal(t, make([]error, n), b.PublishAll(t.Context(), msgs))
	info, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.EqualValues(t, n, info.LastSeq, "all are stored when the last one is")
	_, out := readLog(t, b, 1)
	for i := range n {
		require.Equal(t, strconv.Itoa(i), receive(t, out).ID)
	}
}

func publishAllLazyReportsErrors(t *testing.T, b bus.Bus) {
	large, first := event(3, "large"), event(3, "a")
	large.Data, large.Lazy, first.Lazy = tooLarge(), true, true
	for _, msgs := range [][]bus.Msg{{first, large, event(3, "b")}, {first, event(3, "b"), large}} {
		for i, err := range b.PublishAll(t.Context(), msgs) {
			if msgs[i].ID == "large" {
				require.ErrorIs(t, err, bus.ErrTooLarge)
				continue
			}
			require.NoError(t, err)
		}
	}
	info, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.EqualValues(t, 2, info.LastSeq)
}

func publishAllOfNothing(t *testing.T, b bus.Bus) {
	require.Empty(t, b.PublishAll(t.Context(), nil))
}

func publishAllRepeated(t *testing.T, b bus.Bus) {
	publish(t, b, event(3, "a"))
	errs := b.PublishAll(t.Context(), []bus.Msg{event(3, "a"), event(3, "b"), event(3, "b")})
	require.Equal(t, []error{nil, nil, nil}, errs)
	info, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, uint64(2), info.LastSeq)
}

func publishLeavesMessage(t *testing.T, b bus.Bus) {
	m := event(3, "a")
	m.Header = bus.Header{"k": {"v"}}
	publish(t, b, m)
	require.Equal(t, bus.Header{"k": {"v"}}, m.Header)
	require.Empty(t, m.Reply)
}
