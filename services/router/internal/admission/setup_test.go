package admission

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/services/router/internal/cancel"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder takes doorbells, signals, stops and events.
type recorder struct {
	mu      sync.Mutex
	runs    []dispatch.Run
	notices []dispatch.Delivery
	signals []dispatch.Signal
	letters []dispatch.Letter
	stops   []cancel.Stop
	events  []event.Lifecycle
}

func (r *recorder) Ring(_ context.Context, runs []dispatch.Run, notices []dispatch.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, runs...)
	r.notices = append(r.notices, notices...)
}

func (r *recorder) Signal(_ context.Context, s dispatch.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signals = append(r.signals, s)
}

func (r *recorder) Bury(_ context.Context, letters []dispatch.Letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.letters = append(r.letters, letters...)
}

func (r *recorder) Cancel(_ context.Context, s cancel.Stop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, s)
}

func (r *recorder) Emit(ev event.Lifecycle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

func (r *recorder) types() []event.Type {
	r.mu.Lock()
	defer r.mu.Unlock()
	var types []event.Type
	for _, e := range r.events {
		types = append(types, e.Type)
	}
	return types
}

// faults answers for the store as long as it returns an error.
type faults struct {
	*memstore.Store
	admit  func(store.Admission) error
	tries  int
	offset func() error
}

func (f *faults) Admit(ctx context.Context, a store.Admission) ([]store.Admitted, error) {
	f.tries++
	if f.admit != nil {
		if err := f.admit(a); err != nil {
			return nil, err
		}
	}
	return f.Store.Admit(ctx, a)
}

func (f *faults) SetOffset(ctx context.Context, old *store.Offset, next store.Offset) error {
	if f.offset != nil {
		if err := f.offset(); err != nil {
			return err
		}
	}
	return f.Store.SetOffset(ctx, old, next)
}

type bundle struct {
	*Admitter
	store *faults
	rec   *recorder
	// busy is what every profile does; the zero value is the policy queue without a cap.
	busy  Busy
	spans *tracetest.InMemoryExporter
	// seq counts the entries that entry has made, in one stream of all partitions.
	seq int64
	at  map[int]*attachment
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{
		store: &faults{Store: memstore.New()}, rec: &recorder{}, spans: tracetest.NewInMemoryExporter(), at: map[int]*attachment{},
		busy: Busy{Policy: event.PolicyQueue, Quiet: time.Second, Max: time.Minute, Pending: 200},
	}
	var err error
	b.Admitter, err = New(Deps{
		Store: b.store, Bells: b.rec, Canceller: b.rec, Events: b.rec, Logger: slog.New(slog.DiscardHandler),
		Busy:       func(string) Busy { return b.busy },
		KeyOptions: func(string) session.Options { return session.DefaultOptions() },
		Tracer:     sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans)).Tracer("test"), Meter: noop.Meter{},
	})
	require.NoError(t, err)
	return b
}

// attached returns the attachment of a partition, which begins at offset 0.
func (b *bundle) attached(t *testing.T, partition int) *attachment {
	t.Helper()
	if at := b.at[partition]; at != nil && !at.ended() {
		return at
	}
	offs, err := b.store.Offsets(t.Context(), []int{partition})
	require.NoError(t, err)
	if len(offs) == 0 {
		offs = []store.Offset{{Partition: partition, Stream: "ING_0"}}
		require.NoError(t, b.store.Store.SetOffset(t.Context(), nil, offs[0]))
	}
	b.at[partition] = newAttachment(t.Context(), partition, start{stream: "ING_0", position: offs[0].LastSeq})
	t.Cleanup(b.at[partition].drop)
	return b.at[partition]
}

// entry makes the next entry of the log.
func (b *bundle) entry(t *testing.T, m *event.Message) *candidate {
	t.Helper()
	data, err := event.Encode(m)
	require.NoError(t, err)
	return b.raw(t, session.Partition(m.SKey), bus.Msg{Subject: bus.IngestSubject(m.Tenant, m.SKey), ID: m.UID, Data: data})
}

func (b *bundle) raw(t *testing.T, partition int, m bus.Msg) *candidate {
	t.Helper()
	b.seq++
	return b.candidate(t.Context(), delivery{
		Entry: bus.Entry{Msg: m, Partition: partition, Seq: uint64(b.seq)},
		from:  b.attached(t, partition),
	})
}

func (b *bundle) offsetOf(t *testing.T, partition int) int64 {
	t.Helper()
	offs, err := b.store.Offsets(t.Context(), []int{partition})
	require.NoError(t, err)
	require.Len(t, offs, 1)
	return offs[0].LastSeq
}

func (b *bundle) admitted(t *testing.T, m *event.Message) store.Submission {
	t.Helper()
	s, err := b.store.Submission(t.Context(), m.SKey, m.UID)
	require.NoError(t, err)
	return s
}

func (b *bundle) requireAbsent(t *testing.T, m *event.Message) {
	t.Helper()
	_, err := b.store.Submission(t.Context(), m.SKey, m.UID)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// message is message number n of a chat on a platform.
func message(platform, chat string, n int) *event.Message {
	src := session.Source{Platform: platform, Account: "acc", ChatID: chat, ChatType: "dm", UserID: "u"}
	key := session.Key(src, session.DefaultOptions())
	id := fmt.Sprint(n)
	return &event.Message{
		UID: event.UID("default", src, id, event.KindMessage, ""), Tenant: "default", SessionKey: key,
		SKey: session.SKey("default", key), Profile: "helper", RunClass: "fast", Kind: event.KindMessage, Source: src,
		ReplyTo: event.Address{Platform: platform, Account: "acc", ChatID: chat}, Text: "hello " + id, PlatformMessageID: id,
	}
}

func slash(platform, chat string, n int, name string) *event.Message {
	m := message(platform, chat, n)
	m.Kind, m.Command = event.KindCommand, &event.Command{Name: name}
	return m
}

// otherPartition returns a chat whose session lives in another partition than that of chat "a".
func otherPartition(t *testing.T) string {
	t.Helper()
	home := session.Partition(message("webhook", "a", 1).SKey)
	for i := range 1000 {
		chat := fmt.Sprint("b", i)
		if session.Partition(message("webhook", chat, 1).SKey) != home {
			return chat
		}
	}
	t.Fatal("every chat lives in one partition")
	return ""
}

func spanOf(c *candidate) trace.SpanID { return c.span.SpanContext().SpanID() }
