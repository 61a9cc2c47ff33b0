package natsbus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/netproxy"
)

const skey = "abc"

func message(id string) bus.Msg {
	return bus.Msg{Subject: bus.IngestSubject("acme", skey), ID: id, Data: []byte("{}")}
}

func runDoorbell(id string) bus.Msg {
	return bus.Msg{Subject: bus.RunSubject("std", skey), ID: id, Data: []byte("{}")}
}

func lastSeq(t *testing.T, b *Bus) uint64 {
	t.Helper()
	info, err := b.LogInfo(t.Context(), session.Partition(skey))
	require.NoError(t, err)
	return info.LastSeq
}

type published struct {
	ack bus.Ack
	err error
}

func publishAsync(ctx context.Context, b *Bus, m bus.Msg) <-chan published {
	done := make(chan published, 1)
	go func() {
		ack, err := b.Publish(ctx, m)
		done <- published{ack, err}
	}()
	return done
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		require.FailNow(t, "nothing received")
		panic("unreachable")
	}
}

func TestENG02_ALostAcknowledgementIsRetriedUnderTheSameIDAndStoredOnce(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	proxy := netproxy.New(t, server.Addr())
	direct := openReady(t, server.URL())
	ingress := openReady(t, "nats://"+proxy.Addr())

	proxy.Mute()
	done := publishAsync(t.Context(), ingress, message("e1"))
	await.True(t, soon, func() bool { return lastSeq(t, direct) == 1 }, "the event is stored")
	proxy.Restore()

	got := receive(t, done)
	require.NoError(t, got.err)
	require.True(t, got.ack.Duplicate)
	require.Equal(t, uint64(1), got.ack.Seq)
	require.Equal(t, uint64(1), lastSeq(t, direct))

	again, err := ingress.Publish(t.Context(), message("e1"))
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	require.Equal(t, uint64(1), lastSeq(t, direct))
	stored, err := direct.EntryAt(t.Context(), session.Partition(skey), 1)
	require.NoError(t, err)
	require.Equal(t, "e1", stored.ID)
}

func TestENG02_ARestartOfTheBrokerBetweenTheAttemptsDoesNotStoreTwice(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	proxy := netproxy.New(t, server.Addr())
	direct := openReady(t, server.URL())
	ingress := openReady(t, "nats://"+proxy.Addr())

	proxy.Mute()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	done := publishAsync(ctx, ingress, message("e1"))
	await.True(t, soon, func() bool { return lastSeq(t, direct) == 1 }, "the event is stored")
	restart(t, server, direct)
	proxy.Restore()

	got := receive(t, done)
	require.NoError(t, got.err)
	require.True(t, got.ack.Duplicate)
	require.Equal(t, uint64(1), got.ack.Seq)
	require.Equal(t, uint64(1), lastSeq(t, direct))
}

func TestENG02_WithoutAStreamThePublisherKeepsTryingWithinItsBudgetAndThenFails(t *testing.T) {
	t.Parallel()
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: streams()}, fast())
	const budget = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	start := time.Now()
	_, err := b.Publish(ctx, message("e1"))
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.GreaterOrEqual(t, time.Since(start), budget-maxBackoff/2)
}

func TestENG02_AStreamThatComesBackWithinTheBudgetTakesTheMessage(t *testing.T) {
	t.Parallel()
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: streams()}, fast())
	done := publishAsync(t.Context(), b, message("e1"))
	// The first attempt failed when it has put the missing doorbell streams back.
	await.NoError(t, soon, func() error {
		_, err := b.js.Stream(t.Context(), bus.StreamRun)
		return err
	})
	require.NoError(t, b.EnsureStreams(t.Context()))
	got := receive(t, done)
	require.NoError(t, got.err)
	require.False(t, got.ack.Duplicate)
	require.Equal(t, uint64(1), lastSeq(t, b))
}

func TestENG02_LazyMessagesAreSentAgainWithTheOneThatIsAnswered(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	proxy := netproxy.New(t, server.Addr())
	direct := openReady(t, server.URL())
	b := openReady(t, "nats://"+proxy.Addr())
	msgs := []bus.Msg{message("e1"), message("e2"), message("e3")}
	msgs[0].Lazy, msgs[1].Lazy = true, true

	proxy.Mute()
	done := make(chan []error, 1)
	go func() { done <- b.PublishAll(t.Context(), msgs) }()
	await.True(t, soon, func() bool { return lastSeq(t, direct) == 3 }, "the messages are stored")
	proxy.Restore()
	require.Equal(t, make([]error, 3), receive(t, done))
	require.EqualValues(t, 3, lastSeq(t, direct))
}

func TestENG02_LazyMessagesAreLostIfTheOneThatIsAnsweredIs(t *testing.T) {
	t.Parallel()
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: streams()}, fast())
	msgs := []bus.Msg{message("e1"), message("e2"), message("e3")}
	msgs[0].Lazy, msgs[1].Lazy = true, true
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, err := range b.PublishAll(ctx, msgs) {
		require.ErrorIs(t, err, bus.ErrUnavailable, "no stream took them")
	}
}

func TestENG02_WithoutAListenerForTenSecondsThePublisherGivesUpAtTheEndOfItsOwnBudget(t *testing.T) {
	t.Parallel()
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: streams()}, defaultTiming())
	start := time.Now()
	_, err := b.Publish(t.Context(), message("e1"))
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.GreaterOrEqual(t, time.Since(start), b.timing.budget-maxBackoff)
	require.NoError(t, b.EnsureStreams(t.Context()))
	require.Zero(t, lastSeq(t, b), "what was refused is not stored later")
}

func TestENG12_AMessageThatIsTooLargeIsRefusedByItsEncodedSizeAndTheConnectionLives(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())
	large := message("e1")
	large.Data = []byte(strings.Repeat("x", 2_000_000))
	_, err := b.Publish(t.Context(), large)
	require.ErrorIs(t, err, bus.ErrTooLarge)

	first := publishOne(t, b, message("e2"))
	require.EqualValues(t, 1, first.Seq)

	// 1 048 500 bytes are less than the limit of 1 MiB; with their headers they are not.
	wide := message("e3")
	wide.Data = []byte(strings.Repeat("水", 349_500))
	wide.Header = bus.Header{"traceparent": {strings.Repeat("0", 120)}}
	_, err = b.Publish(t.Context(), wide)
	require.ErrorIs(t, err, bus.ErrTooLarge)
	require.ErrorIs(t, b.PublishAll(t.Context(), []bus.Msg{wide})[0], bus.ErrTooLarge)
	require.EqualValues(t, 2, publishOne(t, b, message("e4")).Seq)
	require.Zero(t, b.nc.Stats().Reconnects)

	require.NoError(t, b.PutObject(t.Context(), "e1", large.Data))
	got, err := b.GetObject(t.Context(), "e1")
	require.NoError(t, err)
	require.Equal(t, large.Data, got)
}

func TestPublish_GivesUpAfterThreeRetriesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	proxy := netproxy.New(t, server.Addr())
	direct := openReady(t, server.URL())
	b := openReady(t, "nats://"+proxy.Addr())
	proxy.Mute()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := b.Publish(ctx, message("e1"))
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.GreaterOrEqual(t, time.Since(start), (publishRetries+1)*b.timing.attempt)
	require.Equal(t, uint64(1), lastSeq(t, direct))
	proxy.Restore()
	await.NoError(t, soon, func() error { return b.Ready(t.Context()) })
}

func TestPublish_IsUnavailableWhileTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	require.NoError(t, server.Shutdown())
	await.True(t, soon, func() bool { return !b.nc.IsConnected() })

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := b.Publish(ctx, message("e1"))
	require.ErrorIs(t, err, bus.ErrUnavailable)
	for _, err := range b.PublishAll(ctx, []bus.Msg{message("e1"), runDoorbell("r1")}) {
		require.ErrorIs(t, err, bus.ErrUnavailable)
	}
	require.ErrorIs(t, b.Notify(ctx, bus.Msg{Subject: "ctl.00.a"}), bus.ErrUnavailable)
	_, err = b.Request(ctx, bus.Msg{Subject: "snap.00.a"})
	require.ErrorIs(t, err, bus.ErrUnavailable)
	_, err = b.LogInfo(ctx, 0)
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.ErrorIs(t, b.Ready(t.Context()), bus.ErrUnavailable)
	require.ErrorIs(t, b.EnsureStreams(ctx), bus.ErrUnavailable)
}

func TestPublish_WaitsForAShortOutage(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	require.NoError(t, server.Shutdown())
	await.True(t, soon, func() bool { return !b.nc.IsConnected() })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	done := publishAsync(ctx, b, message("e1"))
	require.NoError(t, server.Restart())
	require.NoError(t, receive(t, done).err)
	require.Equal(t, uint64(1), lastSeq(t, b))
}

func TestPublish_AFullStreamRefuses(t *testing.T) {
	t.Parallel()
	s := streams()
	s.IngestMaxBytes = 4 << 10
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: s}, fast())
	require.NoError(t, b.EnsureStreams(t.Context()))
	var err error
	for i := 0; err == nil && i < 100; i++ {
		m := message(fmt.Sprint(i))
		m.Data = make([]byte, 1<<10)
		_, err = b.Publish(t.Context(), m)
	}
	require.ErrorIs(t, err, bus.ErrFull)
	require.NotErrorIs(t, err, bus.ErrUnavailable)
	first, err := b.EntryAt(t.Context(), session.Partition(skey), 1)
	require.NoError(t, err)
	require.Equal(t, "0", first.ID, "the oldest message stays")
}

func TestPublish_RecreatesLostDoorbellStreams(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())
	require.NoError(t, b.js.DeleteStream(t.Context(), bus.StreamRun))
	require.NoError(t, b.js.DeleteStream(t.Context(), bus.StreamOut))
	errs := b.PublishAll(t.Context(), []bus.Msg{
		runDoorbell("r1"),
		{Subject: bus.OutSubject("webhook", skey), ID: "o1"},
		message("e1"),
	})
	require.Equal(t, []error{nil, nil, nil}, errs)
	w, err := b.Work(t.Context(), bus.RunQueue("std"))
	require.NoError(t, err)
	work, err := w.Fetch(t.Context(), 10, soon)
	require.NoError(t, err)
	require.Len(t, work, 1)
	require.Equal(t, "r1", work[0].Msg().ID)
}

func TestPublish_NeverRecreatesADurableStream(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())
	name := bus.IngestStream(0, 1)
	require.NoError(t, b.js.DeleteStream(t.Context(), name))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.Publish(ctx, message("e1"))
	require.ErrorIs(t, err, bus.ErrUnavailable)
	_, err = b.js.Stream(t.Context(), name)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}
