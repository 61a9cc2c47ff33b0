package admission

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/services/internal/hold"
)

const soon = 20 * time.Second

// openBus connects to a broker with that many ingest streams.
func openBus(t *testing.T, server *natsserver.Server, streams int) *natsbus.Bus {
	t.Helper()
	cfg := natsbus.Config{URL: server.URL(), Streams: bus.DefaultConfig()}
	cfg.Streams.Memory, cfg.Streams.Streams = true, streams
	b, err := natsbus.Connect(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.EnsureStreams(t.Context()))
	return b
}

func accept(t *testing.T, b *natsbus.Bus, m *event.Message) bus.Ack {
	t.Helper()
	data, err := event.Encode(m)
	require.NoError(t, err)
	ack, err := b.Publish(t.Context(), bus.Msg{Subject: bus.IngestSubject(m.Tenant, m.SKey), ID: m.UID, Data: data})
	require.NoError(t, err)
	return ack
}

// own starts the admitter on one partition.
func (b *bundle) own(t *testing.T, log Log, partition int) {
	t.Helper()
	b.Log = log
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	b.Own(t.Context(), []int{partition})
}

func (b *bundle) awaitAdmitted(t *testing.T, m *event.Message) store.Submission {
	t.Helper()
	var s store.Submission
	await.NoError(t, soon, func() (err error) {
		s, err = b.store.Submission(t.Context(), m.SKey, m.UID)
		return err
	})
	return s
}

func TestReader_ReadsWhatAnotherNumberOfStreamsLeftBehindFirst(t *testing.T) {
	t.Parallel()
	server := natsserver.NewMemory(t)
	one := openBus(t, server, 1)
	msgs := make([]*event.Message, 6)
	for i := range msgs {
		msgs[i] = message("webhook", "a", i+1)
	}
	p := session.Partition(msgs[0].SKey)
	before := setup(t)
	t.Run("before", func(t *testing.T) {
		for _, m := range msgs[:3] {
			accept(t, one, m)
		}
		before.own(t, one, p)
		before.awaitAdmitted(t, msgs[2])
	})

	accept(t, one, msgs[3]) // nobody reads it any more
	many := openBus(t, server, 16)
	require.Equal(t, bus.IngestStream(p, 16), accept(t, many, msgs[4]).Stream)
	require.Equal(t, bus.IngestStream(p, 16), accept(t, many, msgs[5]).Stream)

	after := setup(t)
	after.store = before.store
	after.Store = before.store
	after.own(t, many, p)
	after.awaitAdmitted(t, msgs[5])
	for i, m := range msgs {
		require.EqualValues(t, i+1, after.admitted(t, m).Seq, "in the order in which they were accepted")
	}
	offs, err := after.store.Offsets(t.Context(), []int{p})
	require.NoError(t, err)
	require.Equal(t, bus.IngestStream(p, 16), offs[0].Stream)
}

func TestReader_AHeldPartitionWaitsForTheChoiceAndDoesWhatItSays(t *testing.T) {
	t.Parallel()
	log := openBus(t, natsserver.NewMemory(t), 1)
	old, fresh := message("webhook", "a", 1), message("webhook", "a", 2)
	p := session.Partition(old.SKey)
	ack := accept(t, log, old)
	info, err := log.LogInfo(t.Context(), p)
	require.NoError(t, err)
	kv, err := log.OpenKV(t.Context(), bus.BucketEngine)
	require.NoError(t, err)
	c := copied{Stream: ack.Stream, Created: created(info), Offsets: []copiedOffset{{Seq: int64(ack.Seq), At: time.Now().Add(-time.Hour)}}}
	require.NoError(t, saveCopy(t.Context(), kv, p, c, 0))

	b := setup(t) // its store was restored to a time before the first message
	b.own(t, log, p)
	await.True(t, soon, func() bool { return b.held() == 1 }, "held")
	accept(t, log, fresh) // the doors go on
	b.requireAbsent(t, old)

	require.NoError(t, hold.Choose(t.Context(), kv, p, hold.Store))
	require.EqualValues(t, 2, b.awaitAdmitted(t, fresh).Seq)
	require.EqualValues(t, 1, b.admitted(t, old).Seq)
	await.True(t, soon, func() bool { return b.held() == 0 }, "not held any more")
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	require.Len(t, b.rec.runs, 1, "only the fresh message is answered")
}
