package natsbus

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
)

func streamConfig(t *testing.T, b *Bus, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := b.js.Stream(t.Context(), name)
	require.NoError(t, err)
	return s.CachedInfo().Config
}

func TestEnsureStreams_CreatesThemAsConfigured(t *testing.T) {
	t.Parallel()
	b := openReady(t, natsserver.New(t).URL())

	ing := streamConfig(t, b, "ING_0")
	require.Equal(t, jetstream.FileStorage, ing.Storage)
	require.Equal(t, jetstream.LimitsPolicy, ing.Retention)
	require.Equal(t, jetstream.DiscardNew, ing.Discard)
	require.Equal(t, 72*time.Hour, ing.MaxAge)
	require.Equal(t, streams().IngestMaxBytes, ing.MaxBytes)
	require.Equal(t, 2*time.Minute, ing.Duplicates)
	require.True(t, ing.AllowDirect)
	require.True(t, ing.AllowAtomicPublish)

	for _, name := range []string{bus.StreamRun, bus.StreamOut} {
		s := streamConfig(t, b, name)
		require.Equal(t, jetstream.MemoryStorage, s.Storage)
		require.Equal(t, jetstream.WorkQueuePolicy, s.Retention)
		require.Equal(t, 10*time.Minute, s.MaxAge)
		require.Equal(t, 2*time.Minute, s.Duplicates)
	}

	evt := streamConfig(t, b, bus.StreamEvents)
	require.Equal(t, jetstream.FileStorage, evt.Storage)
	require.Equal(t, jetstream.AsyncPersistMode, evt.PersistMode)
	require.Equal(t, jetstream.DiscardOld, evt.Discard)
	require.Equal(t, 24*time.Hour, evt.MaxAge)
	require.Equal(t, streams().EventMaxBytes, evt.MaxBytes)

	dlq := streamConfig(t, b, bus.StreamDeadLetter)
	require.Equal(t, jetstream.FileStorage, dlq.Storage)
	require.Equal(t, 30*24*time.Hour, dlq.MaxAge)
}

func TestEnsureStreams_MemoryKeepsEverythingInMemory(t *testing.T) {
	t.Parallel()
	s := streams()
	s.Memory = true
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: s}, fast())
	require.NoError(t, b.EnsureStreams(t.Context()))
	for name := range b.streams {
		require.Equal(t, jetstream.MemoryStorage, streamConfig(t, b, name).Storage, name)
	}
}

func TestEnsureStreams_DealsPartitionsOutToSeveralStreams(t *testing.T) {
	t.Parallel()
	s := streams()
	s.Streams = 4
	b := open(t, Config{URL: natsserver.New(t).URL(), Streams: s}, fast())
	require.NoError(t, b.EnsureStreams(t.Context()))
	ack, err := b.Publish(t.Context(), message("e1"))
	require.NoError(t, err)
	p := session.Partition(skey)
	require.Equal(t, bus.IngestStream(p, 4), ack.Stream)
	info, err := b.LogInfo(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, ack.Stream, info.Stream)
	require.Equal(t, ack.Seq, info.LastSeq)
	out := make(chan bus.Entry, 1)
	r, err := b.ReadLog(t.Context(), p, 1, out)
	require.NoError(t, err)
	require.Equal(t, "e1", receive(t, out).ID)
	require.NoError(t, r.Close())
}

func TestEnsureStreams_MoreStreamsThanBeforeTakeOverTheirPartitions(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	before := openReady(t, server.URL())
	old, err := before.Publish(t.Context(), message("e1"))
	require.NoError(t, err)
	s := streams()
	s.Streams = 16
	b := open(t, Config{URL: server.URL(), Streams: s}, fast())
	require.NoError(t, b.EnsureStreams(t.Context()))
	p := session.Partition(skey)
	ack, err := b.Publish(t.Context(), message("e2"))
	require.NoError(t, err)
	require.Equal(t, bus.IngestStream(p, 16), ack.Stream)
	kept, err := before.EntryAt(t.Context(), p, old.Seq)
	require.NoError(t, err)
	require.Equal(t, "e1", kept.ID)
}

func TestEnsureStreams_AnyNumberOfStreamsFollowsAnyOtherAndTheOldOnesStayReadable(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	p := session.Partition(skey)
	seen := map[string]bus.Ack{}
	for i, n := range []int{1, 4, 16, 2, 1} {
		s := streams()
		s.Streams = n
		b := open(t, Config{URL: server.URL(), Streams: s}, fast())
		require.NoError(t, b.EnsureStreams(t.Context()))
		require.NoError(t, b.EnsureStreams(t.Context()))
		id := fmt.Sprint("e", i)
		ack := publishOne(t, b, message(id))
		require.Equal(t, bus.IngestStream(p, n), ack.Stream)
		seen[id] = ack
		for id, ack := range seen {
			old, err := b.OldLog(t.Context(), p, ack.Stream)
			require.NoError(t, err)
			out := make(chan bus.Entry, 16)
			r, err := old.ReadLog(t.Context(), p, ack.Seq, out)
			require.NoError(t, err)
			require.Equal(t, id, receive(t, out).ID)
			require.NoError(t, r.Close())
		}
	}
}

func TestEnsureStreams_AppliesLimitsAndRefusesAnotherStorage(t *testing.T) {
	t.Parallel()
	server := natsserver.New(t)
	openReady(t, server.URL())

	larger := streams()
	larger.IngestMaxBytes *= 2
	b := open(t, Config{URL: server.URL(), Streams: larger}, fast())
	require.NoError(t, b.EnsureStreams(t.Context()))
	require.Equal(t, larger.IngestMaxBytes, streamConfig(t, b, "ING_0").MaxBytes)

	memory := streams()
	memory.Memory = true
	b = open(t, Config{URL: server.URL(), Streams: memory}, fast())
	require.ErrorContains(t, b.EnsureStreams(t.Context()), "ensure stream")
}

func TestConnect_RefusesAConfigThatCannotWork(t *testing.T) {
	t.Parallel()
	valid := Config{URL: "nats://127.0.0.1:4222", Streams: streams()}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no url":             {func(c *Config) { c.URL = "" }, "nats: no url"},
		"malformed url":      {func(c *Config) { c.URL = "nats://user:secret@%zz" }, "nats: url: not valid"},
		"no streams":         {func(c *Config) { c.Streams.Streams = 0 }, "nats: streams: 0 does not divide 64"},
		"uneven streams":     {func(c *Config) { c.Streams.Streams = 3 }, "nats: streams: 3 does not divide 64"},
		"no replicas":        {func(c *Config) { c.Streams.Replicas = 0 }, "nats: replicas: 0 is less than 1"},
		"missing credential": {func(c *Config) { c.Credentials = "/does/not/exist.creds" }, "connect to nats: nats: open /does/not/exist.creds: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := valid
			c.change(&cfg)
			_, err := Connect(t.Context(), cfg, slog.New(slog.DiscardHandler))
			require.EqualError(t, err, c.want)
		})
	}
}
