package natsbus

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/netproxy"
)

func readSkey(t *testing.T, b *Bus, from uint64) (*reader, <-chan bus.Entry) {
	t.Helper()
	out := make(chan bus.Entry, 16)
	r, err := b.ReadLog(t.Context(), session.Partition(skey), from, out)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r.(*reader), out
}

func publishOne(t *testing.T, b *Bus, m bus.Msg) bus.Ack {
	t.Helper()
	ack, err := b.Publish(t.Context(), m)
	require.NoError(t, err)
	return ack
}

// restart waits until the bus has noticed.
func restart(t *testing.T, s *natsserver.Server, b *Bus) {
	t.Helper()
	before := b.nc.Stats().Reconnects
	require.NoError(t, s.Restart())
	await.True(t, soon, func() bool { return b.nc.Stats().Reconnects > before && b.nc.IsConnected() }, "reconnected")
}

func TestRestart_KeepsTheIngestLogAndBreaksItsReaders(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	first := publishOne(t, b, message("e1"))
	before, err := b.LogInfo(t.Context(), session.Partition(skey))
	require.NoError(t, err)
	r, out := readSkey(t, b, 1)
	require.Equal(t, "e1", receive(t, out).ID)

	restart(t, server, b)
	receive(t, r.Broken())
	require.ErrorIs(t, r.Err(), bus.ErrBroken)
	after, err := b.LogInfo(t.Context(), session.Partition(skey))
	require.NoError(t, err)
	require.Equal(t, before, after)

	// onReconnect may still break a reader that is opened too early; the engine then attaches once more.
	await.NoError(t, soon, func() error {
		entries := make(chan bus.Entry, 16)
		r, err := b.ReadLog(t.Context(), session.Partition(skey), first.Seq+1, entries)
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		publishOne(t, b, message("")) // without an id each attempt stores one
		select {
		case <-r.Broken():
			return r.Err()
		case e := <-entries:
			require.Greater(t, e.Seq, first.Seq)
			return nil
		}
	})
}

func TestRestart_RecreatesDoorbellStreamsAndQueues(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	run, err := b.Work(t.Context(), bus.RunQueue("std"))
	require.NoError(t, err)
	out, err := b.Work(t.Context(), bus.OutQueue("webhook"))
	require.NoError(t, err)
	publishOne(t, b, runDoorbell("lost"))

	restart(t, server, b)
	publishOne(t, b, runDoorbell("r1"))
	publishOne(t, b, bus.Msg{Subject: bus.OutSubject("webhook", skey), ID: "o1"})
	require.Equal(t, "r1", fetchOne(t, run))
	require.Equal(t, "o1", fetchOne(t, out))
}

// fetchOne does what every consumer does: fetch again after an error.
func fetchOne(t *testing.T, w bus.Worker) string {
	t.Helper()
	var work []bus.Work
	await.True(t, soon, func() bool {
		got, err := w.Fetch(t.Context(), 1, time.Second)
		if err != nil {
			require.ErrorIs(t, err, bus.ErrUnavailable)
		}
		work = got
		return len(got) == 1
	}, "a message arrives")
	require.NoError(t, work[0].Ack())
	return work[0].Msg().ID
}

func TestRestart_IsUnnoticedByListeners(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	ch := make(chan bus.Msg, 64)
	_, err := b.Listen("ctl.>", ch)
	require.NoError(t, err)
	restart(t, server, b)
	require.NoError(t, b.Ready(t.Context()))
	require.NoError(t, b.Notify(t.Context(), bus.Msg{Subject: "ctl.00.a", Data: []byte("x")}))
	require.Equal(t, "x", string(receive(t, ch).Data))
}

func TestRestart_InMemoryLosesEverythingAndShowsIt(t *testing.T) {
	t.Parallel()
	server := natsserver.NewMemory(t)
	s := streams()
	s.Memory = true
	b := open(t, Config{URL: server.URL(), Streams: s}, fast())
	require.NoError(t, b.EnsureStreams(t.Context()))
	kv, err := b.OpenKV(t.Context(), "engine")
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), "k", []byte("v"), 0)
	require.NoError(t, err)
	publishOne(t, b, message("e1"))
	before, err := b.LogInfo(t.Context(), 0)
	require.NoError(t, err)

	restart(t, server, b)
	require.Equal(t, uint64(1), publishOne(t, b, message("e2")).Seq)
	after, err := b.LogInfo(t.Context(), 0)
	require.NoError(t, err)
	require.NotEqual(t, before.Created, after.Created)
	_, err = kv.Put(t.Context(), "k", []byte("v"), 0)
	require.NoError(t, err)
}

func TestRestart_AFetchThatWaitsForItsMessageGoesOn(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	w, err := b.Work(t.Context(), bus.RunQueue("std"))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Fetch(t.Context(), 10, time.Minute)
		ended <- err
	}()
	restart(t, server, b)
	publishOne(t, b, runDoorbell("r1"))
	select {
	case err := <-ended: // the request ended with its connection
		if err != nil {
			require.ErrorIs(t, err, bus.ErrUnavailable)
			require.Equal(t, "r1", fetchOne(t, w))
		}
	case <-time.After(soon):
		require.Fail(t, "the fetch hangs")
	}
}

func TestRestart_InMemoryTheObjectStoreComesBackEmpty(t *testing.T) {
	t.Parallel()
	server := natsserver.NewMemory(t)
	s := streams()
	s.Memory = true
	b := open(t, Config{URL: server.URL(), Streams: s}, fast())
	require.NoError(t, b.PutObject(t.Context(), "o", []byte("one")))
	restart(t, server, b)
	require.NoError(t, b.PutObject(t.Context(), "p", []byte("two")))
	got, err := b.GetObject(t.Context(), "p")
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
	_, err = b.GetObject(t.Context(), "o")
	require.ErrorIs(t, err, bus.ErrNotFound)
}

func TestRestart_KeepsObjects(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	require.NoError(t, b.PutObject(t.Context(), "o", []byte("one")))
	restart(t, server, b)
	await.NoError(t, soon, func() error {
		got, err := b.GetObject(t.Context(), "o")
		if err == nil {
			require.Equal(t, "one", string(got))
		}
		return err
	})
}

func TestRestart_DurablesOfDoorbellsHaveTheirSettingsAgain(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	w, err := b.Work(t.Context(), bus.RunQueue("std"))
	require.NoError(t, err)
	restart(t, server, b)
	publishOne(t, b, runDoorbell("r1"))
	require.Equal(t, "r1", fetchOne(t, w))
	c, err := b.js.Consumer(t.Context(), bus.StreamRun, "run-std")
	require.NoError(t, err)
	got := c.CachedInfo().Config
	require.Equal(t, jetstream.AckExplicitPolicy, got.AckPolicy)
	require.Equal(t, 10*time.Second, got.AckWait)
	require.Equal(t, 20_000, got.MaxAckPending)
}

func TestFetch_UsesOneSubscriptionAgainAndAgain(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	b := openReady(t, server.URL())
	w, err := b.Work(t.Context(), bus.RunQueue("std"))
	require.NoError(t, err)
	publishOne(t, b, runDoorbell("first"))
	require.Equal(t, "first", fetchOne(t, w))
	before := b.nc.NumSubscriptions()
	for i := range 5 {
		publishOne(t, b, runDoorbell(fmt.Sprint(i)))
		require.Equal(t, fmt.Sprint(i), fetchOne(t, w))
	}
	require.Equal(t, before, b.nc.NumSubscriptions())

	// An abandoned one goes, with whatever may still come for it.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Fetch(ctx, 1, time.Minute)
		ended <- err
	}()
	cancel()
	require.ErrorIs(t, receive(t, ended), context.Canceled)
	require.Equal(t, before-1, b.nc.NumSubscriptions())
	publishOne(t, b, runDoorbell("later"))
	require.Equal(t, "later", fetchOne(t, w))
}

func TestReader_BreaksWhenTheConnectionIsCut(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	proxy := netproxy.New(t, server.Addr())
	b := openReady(t, "nats://"+proxy.Addr())
	r, _ := readSkey(t, b, 1)
	proxy.Cut()
	receive(t, r.Broken())
	require.ErrorIs(t, r.Err(), bus.ErrBroken)
	require.ErrorContains(t, r.Err(), "disconnected")
	proxy.Restore()
	await.NoError(t, soon, func() error { return b.Ready(t.Context()) })
}

func TestReader_BreaksWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	proxy := netproxy.New(t, server.Addr())
	b := openReady(t, "nats://"+proxy.Addr())
	r, _ := readSkey(t, b, 1)
	proxy.Mute()
	receive(t, r.Broken())
	require.ErrorIs(t, r.Err(), bus.ErrBroken)
	require.ErrorContains(t, r.Err(), "no heartbeat")
	proxy.Restore()
	await.NoError(t, soon, func() error { return b.Ready(t.Context()) })
}

func TestReader_StaysOpenWhileNothingHappens(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())
	r, out := readSkey(t, b, 1)
	select {
	case <-r.Broken():
		require.NoError(t, r.Err())
	case <-time.After(6 * b.timing.heartbeat):
	}
	publishOne(t, b, message("e1"))
	require.Equal(t, "e1", receive(t, out).ID)
}

func TestReader_HeldUpByItsChannelDoesNotBreak(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())
	out := make(chan bus.Entry)
	r, err := b.ReadLog(t.Context(), session.Partition(skey), 1, out)
	require.NoError(t, err)
	publishOne(t, b, message("e1"))
	publishOne(t, b, message("e2"))
	select {
	case <-r.Broken():
		require.NoError(t, r.Err())
	case <-time.After(6 * b.timing.heartbeat):
	}
	require.Equal(t, "e1", receive(t, out).ID)
	require.Equal(t, "e2", receive(t, out).ID)
	require.NoError(t, r.Close())
	require.NoError(t, r.Err())
}

func TestReader_BreaksWhenItsConsumerIsGone(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())
	r, out := readSkey(t, b, 1)
	publishOne(t, b, message("e1"))
	require.Equal(t, "e1", receive(t, out).ID)
	require.NoError(t, b.js.DeleteConsumer(t.Context(), r.stream, r.consumer))
	receive(t, r.Broken())
	require.ErrorIs(t, r.Err(), bus.ErrBroken)
	require.ErrorContains(t, r.Err(), "consumer deleted")
}

func TestReader_BreaksOnAGap(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())
	r, out := readSkey(t, b, 1)
	publishOne(t, b, message("e1"))
	require.Equal(t, "e1", receive(t, out).ID)
	// What would be the second delivery is lost on the way: the third comes next.
	r.in <- &nats.Msg{
		Subject: message("e3").Subject,
		Reply:   "$JS.ACK." + r.stream + "." + r.consumer + ".1.3.3.1700000000000000000.0",
		Data:    []byte("e3"),
		Sub:     r.sub,
	}
	receive(t, r.Broken())
	require.ErrorIs(t, r.Err(), bus.ErrBroken)
	require.ErrorContains(t, r.Err(), "gap: delivery 3 after 1")
	require.Empty(t, out)
}

func TestReader_LeavesNoConsumerBehind(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	watcher := openReady(t, server.URL())
	b := openReady(t, server.URL())
	r, _ := readSkey(t, b, 1)
	readSkey(t, b, 1)
	stream, err := watcher.js.Stream(t.Context(), r.stream)
	require.NoError(t, err)
	consumers := func() int {
		info, err := stream.Info(t.Context())
		require.NoError(t, err)
		return info.State.Consumers
	}
	require.Equal(t, 2, consumers())
	require.NoError(t, r.Close())
	await.True(t, soon, func() bool { return consumers() == 1 }, "closed reader is gone")
	require.NoError(t, b.Close())
	require.Zero(t, consumers())
}

func TestReadLog_WithoutStreamIsNotFound(t *testing.T) {
	t.Parallel()
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: streams()}, fast())
	_, err := b.ReadLog(t.Context(), 0, 1, make(chan bus.Entry))
	require.ErrorIs(t, err, bus.ErrNotFound)
	_, err = b.LogInfo(t.Context(), 0)
	require.ErrorIs(t, err, bus.ErrNotFound)
	_, err = b.EntryAt(t.Context(), 0, 1)
	require.ErrorIs(t, err, bus.ErrNotFound)
}

func TestConnect_WaitsForTheBroker(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	require.NoError(t, server.Shutdown())
	cfg := Config{URL: server.URL(), Streams: streams()}

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := Connect(ctx, cfg, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, bus.ErrUnavailable)

	connected := make(chan *Bus, 1)
	go func() {
		b, err := Connect(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			connected <- b
		}
	}()
	require.NoError(t, server.Restart())
	b := receive(t, connected)
	require.NoError(t, b.Ready(t.Context()))
	require.NoError(t, b.Close())
}

func TestClose_SendsWhatIsDue(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	listener := openReady(t, server.URL())
	ch := make(chan bus.Msg, 1)
	_, err := listener.Listen("ctl.>", ch)
	require.NoError(t, err)
	b := openReady(t, server.URL())
	require.NoError(t, b.Notify(t.Context(), bus.Msg{Subject: "ctl.00.a", Data: []byte("bye")}))
	require.NoError(t, b.Close())
	require.Equal(t, "bye", string(receive(t, ch).Data))
}
