package bustest

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

const class = "std"

func workTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"FetchTakesAtMostTheLimit":                fetchLimit,
		"FetchWithoutMessagesIsEmpty":             fetchEmpty,
		"FetchReturnsWithTheFirstMessage":         fetchFirst,
		"FetchEndsWithItsContext":                 fetchEnds,
		"AnAcknowledgedMessageDoesNotComeAgain":   workAck,
		"ARefusedMessageComesAgainAtOnce":         workNak,
		"AForgottenMessageComesAgainAfterAckWait": workAckWait,
		"TwoWorkersShareAQueue":                   workShared,
		"QueuesOfOneStreamAreSeparate":            workSeparate,
		"AMessageWaitsForItsQueue":                workWaits,
		"ANewQueueOfEventsBeginsBehindTheOldOnes": workNew,
		"ASubscriptionGoesOnWhereItWasLeft":       workResumes,
		"SubscriptionsOfOneStreamAreSeparate":     workSubscriptions,
		"UnknownStreamIsNotFound":                 workUnknown,
	}
}

func doorbell(class, id string) bus.Msg {
	return bus.Msg{Subject: bus.RunSubject(class, "s0"), ID: id, Header: bus.Header{"h": {id}}, Data: []byte("run " + id)}
}

func openQueue(t *testing.T, b bus.Bus, q bus.Queue) bus.Worker {
	t.Helper()
	w, err := b.Work(t.Context(), q)
	require.NoError(t, err)
	return w
}

func fetch(t *testing.T, w bus.Worker, limit int, wait time.Duration) []bus.Work {
	t.Helper()
	work, err := w.Fetch(t.Context(), limit, wait)
	require.NoError(t, err)
	return work
}

func ids(work []bus.Work) []string {
	var all []string
	for _, w := range work {
		all = append(all, w.Msg().ID)
	}
	return all
}

func fetchLimit(t *testing.T, b bus.Bus) {
	w := openQueue(t, b, bus.RunQueue(class))
	publish(t, b, doorbell(class, "1"), doorbell(class, "2"), doorbell(class, "3"))
	work := fetch(t, w, 2, soon)
	require.Equal(t, []string{"1", "2"}, ids(work))
	require.Equal(t, "run 1", string(work[0].Msg().Data))
	require.Equal(t, bus.Header{"h": {"1"}}, work[0].Msg().Header)
	require.Equal(t, bus.RunSubject(class, "s0"), work[0].Msg().Subject)
	require.Equal(t, []string{"3"}, ids(fetch(t, w, 2, soon)))
}

func fetchEmpty(t *testing.T, b bus.Bus) {
	w := openQueue(t, b, bus.RunQueue(class))
	require.Empty(t, fetch(t, w, 10, 100*time.Millisecond))
	require.Empty(t, fetch(t, w, 10, 0))
}

func fetchFirst(t *testing.T, b bus.Bus) {
	w := openQueue(t, b, bus.RunQueue(class))
	got := make(chan []string, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		work, err := w.Fetch(t.Context(), 10, time.Minute)
		if err == nil {
			got <- ids(work)
		}
	})
	defer wg.Wait()
	publish(t, b, doorbell(class, "1"))
	require.Equal(t, []string{"1"}, receive(t, got))
}

func fetchEnds(t *testing.T, b bus.Bus) {
	w := openQueue(t, b, bus.RunQueue(class))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Fetch(ctx, 1, time.Minute)
		ended <- err
	}()
	cancel()
	require.ErrorIs(t, receive(t, ended), context.Canceled)
	// The abandoned request takes nothing away.
	publish(t, b, doorbell(class, "1"))
	require.Equal(t, []string{"1"}, ids(fetch(t, w, 1, soon)))
}

func workAck(t *testing.T, b bus.Bus) {
	q := bus.RunQueue(class)
	q.AckWait = 300 * time.Millisecond
	w := openQueue(t, b, q)
	publish(t, b, doorbell(class, "1"))
	work := fetch(t, w, 1, soon)
	require.Len(t, work, 1)
	require.NoError(t, work[0].Ack())
	require.NoError(t, work[0].Ack())
	require.Empty(t, fetch(t, w, 1, 2*q.AckWait))
}

func workNak(t *testing.T, b bus.Bus) {
	w := openQueue(t, b, bus.RunQueue(class))
	publish(t, b, doorbell(class, "1"))
	work := fetch(t, w, 1, soon)
	require.Len(t, work, 1)
	require.NoError(t, work[0].Nak())
	again := fetch(t, w, 1, soon)
	require.Equal(t, []string{"1"}, ids(again))
	require.NoError(t, again[0].Ack())
}

func workAckWait(t *testing.T, b bus.Bus) {
	q := bus.RunQueue(class)
	q.AckWait = 300 * time.Millisecond
	w := openQueue(t, b, q)
	publish(t, b, doorbell(class, "1"))
	require.Len(t, fetch(t, w, 1, soon), 1)
	require.Empty(t, fetch(t, w, 1, 0))
	require.Equal(t, []string{"1"}, ids(fetch(t, w, 1, soon)))
}

func workShared(t *testing.T, b bus.Bus) {
	one, two := openQueue(t, b, bus.RunQueue(class)), openQueue(t, b, bus.RunQueue(class))
	want := make(map[string]bool)
	for i := range 20 {
		id := strconv.Itoa(i)
		want[id] = true
		publish(t, b, doorbell(class, id))
	}
	for len(want) > 0 {
		for _, w := range []bus.Worker{one, two} {
			for _, item := range fetch(t, w, 3, 0) {
				require.True(t, want[item.Msg().ID], "%s came twice", item.Msg().ID)
				delete(want, item.Msg().ID)
				require.NoError(t, item.Ack())
			}
		}
	}
}

func workSeparate(t *testing.T, b bus.Bus) {
	std, big := openQueue(t, b, bus.RunQueue("std")), openQueue(t, b, bus.RunQueue("big"))
	publish(t, b, doorbell("std", "1"), doorbell("big", "2"))
	require.Equal(t, []string{"2"}, ids(fetch(t, big, 10, soon)))
	require.Equal(t, []string{"1"}, ids(fetch(t, std, 10, soon)))
}

func workWaits(t *testing.T, b bus.Bus) {
	publish(t, b, bus.Msg{Subject: bus.OutSubject("webhook", "s0"), ID: "1"})
	w := openQueue(t, b, bus.OutQueue("webhook"))
	require.Equal(t, []string{"1"}, ids(fetch(t, w, 10, soon)))
}

func happened(eventType, id string) bus.Msg {
	return bus.Msg{Subject: bus.EventSubject("s0", eventType), ID: id}
}

func workNew(t *testing.T, b bus.Bus) {
	publish(t, b, happened("run_started", "1"))
	w := openQueue(t, b, bus.EventQueue("live", "run_started"))
	publish(t, b, happened("run_finished", "2"), happened("run_started", "3"))
	work := fetch(t, w, 10, soon)
	require.Equal(t, []string{"3"}, ids(work))
	require.NoError(t, work[0].Ack())
	require.Empty(t, fetch(t, w, 10, 0))
}

func workResumes(t *testing.T, b bus.Bus) {
	openQueue(t, b, bus.EventQueue("live", "run_started"))
	publish(t, b, happened("run_started", "1"), happened("run_started", "2"))
	one, two := openQueue(t, b, bus.EventQueue("live", "run_started")), openQueue(t, b, bus.EventQueue("live", "run_started"))
	require.Equal(t, []string{"1"}, ids(fetch(t, one, 1, soon)))
	require.Equal(t, []string{"2"}, ids(fetch(t, two, 10, soon)), "who uses the same name shares the events")
}

func workSubscriptions(t *testing.T, b bus.Bus) {
	live := openQueue(t, b, bus.EventQueue("live", "run_started"))
	audit := openQueue(t, b, bus.EventQueue("audit", "run_started"))
	publish(t, b, happened("run_started", "1"))
	for _, w := range []bus.Worker{live, audit} {
		work := fetch(t, w, 10, soon)
		require.Equal(t, []string{"1"}, ids(work))
		require.NoError(t, work[0].Ack())
	}
}

func workUnknown(t *testing.T, b bus.Bus) {
	_, err := b.Work(t.Context(), bus.Queue{Stream: "NONE", Durable: "d", Filter: "none.>", AckWait: time.Second, MaxAckPending: 1})
	require.ErrorIs(t, err, bus.ErrNotFound)
}
