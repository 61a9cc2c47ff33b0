package bustest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

func eventTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"ScanReadsOneTypeOfOnePartitionInOrder": scanInOrder,
		"ScanBeginsAtATime":                     scanSince,
		"ScanOfNothingEndsAtOnce":               scanNothing,
		"ScanEndsWithTheFirstError":             scanError,
	}
}

func eventOf(partition int, eventType, id string) bus.Msg {
	return bus.Msg{Subject: bus.EventSubject(skeyIn(partition, 0), eventType), ID: id, Data: []byte("event " + id)}
}

func scan(t *testing.T, b bus.Bus, since time.Time) []string {
	t.Helper()
	var ids []string
	require.NoError(t, b.ScanEvents(t.Context(), 3, "response_sent", since, func(m bus.Msg) error {
		require.Equal(t, "event "+m.ID, string(m.Data))
		ids = append(ids, m.ID)
		return nil
	}))
	return ids
}

func scanInOrder(t *testing.T, b bus.Bus) {
	const n = 600
	msgs := make([]bus.Msg, 0, 2*n)
	want := make([]string, 0, n)
	for i := range n {
		id := fmt.Sprint(i)
		want = append(want, id)
		msgs = append(msgs, eventOf(3, "response_sent", id))
		if i%2 == 0 {
			msgs = append(msgs, eventOf(3, "run_started", "r"+id))
		} else {
			msgs = append(msgs, eventOf(4, "response_sent", "p"+id))
		}
	}
	for _, err := range b.PublishAll(t.Context(), msgs) {
		require.NoError(t, err)
	}
	require.Equal(t, want, scan(t, b, time.Now().Add(-time.Hour)))
}

func scanSince(t *testing.T, b bus.Bus) {
	publish(t, b, eventOf(3, "response_sent", "1"))
	require.Equal(t, []string{"1"}, scan(t, b, time.Now().Add(-time.Hour)))
	require.Empty(t, scan(t, b, time.Now().Add(time.Hour)))
}

func scanNothing(t *testing.T, b bus.Bus) {
	publish(t, b, eventOf(4, "response_sent", "1"), eventOf(3, "run_started", "2"))
	require.Empty(t, scan(t, b, time.Now().Add(-time.Hour)))
}

func scanError(t *testing.T, b bus.Bus) {
	publish(t, b, eventOf(3, "response_sent", "1"), eventOf(3, "response_sent", "2"))
	enough := errors.New("enough")
	calls := 0
	err := b.ScanEvents(t.Context(), 3, "response_sent", time.Now().Add(-time.Hour), func(bus.Msg) error {
		calls++
		return enough
	})
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, calls)
}
