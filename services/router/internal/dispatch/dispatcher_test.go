package dispatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/session"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// publisher remembers what it was given, and can refuse.
type publisher struct {
	mu       sync.Mutex
	msgs     []bus.Msg
	notified []bus.Msg
	err      error
}

func (p *publisher) Notify(_ context.Context, m bus.Msg) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notified = append(p.notified, m)
	return p.err
}

func (p *publisher) PublishAll(_ context.Context, msgs []bus.Msg) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.msgs = append(p.msgs, msgs...)
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = p.err
	}
	return errs
}

func (p *publisher) ids() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for _, m := range p.msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

// reservations refuses the sessions in held.
type reservations struct {
	held  map[string]bool
	err   error
	asked [][]lease.Lease
}

func (r *reservations) Reserve(_ context.Context, leases []lease.Lease) ([]lease.Grant, error) {
	r.asked = append(r.asked, leases)
	if r.err != nil {
		return nil, r.err
	}
	grants := make([]lease.Grant, len(leases))
	for i, l := range leases {
		grants[i].OK = !r.held[l.SKey]
	}
	return grants, nil
}

type bundle struct {
	*dispatch.Dispatcher
	bus    *publisher
	leases *reservations
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{bus: &publisher{}, leases: &reservations{held: map[string]bool{}}, spans: tracetest.NewInMemoryExporter()}
	b.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans)).Tracer("test")
	var err error
	b.Dispatcher, err = dispatch.New(dispatch.Deps{
		RouterID: "r1", Leases: b.leases, Bus: b.bus, Logger: slog.New(slog.DiscardHandler), Tracer: b.tracer, Meter: noop.Meter{},
	})
	require.NoError(t, err)
	return b
}

func (b *bundle) ring(t *testing.T, runs []dispatch.Run, deliveries []dispatch.Delivery) {
	t.Helper()
	require.NoError(t, b.Start(t.Context()))
	b.Ring(t.Context(), runs, deliveries)
	require.NoError(t, b.Stop(t.Context()), "a stop rings what is queued")
}

func run(name string) dispatch.Run {
	return dispatch.Run{SKey: session.SKey("t", name), Class: "fast", Gen: 3, RunID: uuid.New()}
}

func TestRing_ReservesRunsAndPublishesDoorbells(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := run("a")
	d := dispatch.Delivery{SKey: r.SKey, Platform: "webhook", OutSeq: 7}
	b.ring(t, []dispatch.Run{r}, []dispatch.Delivery{d})

	require.Equal(t, [][]lease.Lease{{{SKey: r.SKey, Gen: 3, RunID: r.RunID.String(), Holder: "router/r1"}}}, b.leases.asked)
	require.Equal(t, []string{fmt.Sprintf("%s:3:0", r.RunID), r.SKey + ":7:0"}, b.bus.ids())
	require.Equal(t, bus.RunSubject("fast", r.SKey), b.bus.msgs[0].Subject)
	require.Equal(t, bus.OutSubject("webhook", r.SKey), b.bus.msgs[1].Subject)

	var gotRun runv1.Dispatch
	require.NoError(t, proto.Unmarshal(b.bus.msgs[0].Data, &gotRun))
	require.True(t, proto.Equal(&runv1.Dispatch{Skey: r.SKey, Gen: 3, RunId: r.RunID.String()}, &gotRun))
	var gotDelivery deliveryv1.Doorbell
	require.NoError(t, proto.Unmarshal(b.bus.msgs[1].Data, &gotDelivery))
	require.True(t, proto.Equal(&deliveryv1.Doorbell{Skey: r.SKey, OutSeq: 7}, &gotDelivery))
}

func TestRing_LeavesRunsThatSomebodyHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held, free := run("held"), run("free")
	b.leases.held[held.SKey] = true
	b.ring(t, []dispatch.Run{held, free}, nil)
	require.Equal(t, []string{fmt.Sprintf("%s:3:0", free.RunID)}, b.bus.ids())
}

func TestRing_DispatchesWithoutLeasesWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.leases.err = fmt.Errorf("reserve: %w", lease.ErrUnavailable)
		require.NoError(t, b.Start(t.Context()))
		for range 3 {
			b.Ring(t.Context(), []dispatch.Run{run("a")}, nil)
			synctest.Wait()
		}
		require.Len(t, b.bus.ids(), 3)
		require.Len(t, b.leases.asked, 1, "redis is left alone for a while")

		<-time.After(2 * time.Second)
		b.Ring(t.Context(), []dispatch.Run{run("a")}, nil)
		require.NoError(t, b.Stop(t.Context()))
		require.Len(t, b.leases.asked, 2)
		require.Len(t, b.bus.ids(), 4)
	})
}

func TestPublish_GoesOnAfterABrokerThatIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bus.err = bus.ErrUnavailable
	b.Publish(t.Context(), []dispatch.Run{run("a")}, nil)
	b.bus.err = nil
	second := run("b")
	second.N = 2
	b.Publish(t.Context(), []dispatch.Run{second}, nil)
	require.Equal(t, fmt.Sprintf("%s:3:2", second.RunID), b.bus.ids()[1])
	require.Empty(t, b.leases.asked, "the sweeper's rings reserve nothing")
}

func TestPublish_ContinuesTheTraceOfTheMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, parent := b.tracer.Start(t.Context(), "process")
	traced, plain := run("a"), run("b")
	traced.Traceparent = event.Traceparent(ctx)
	b.Publish(t.Context(), []dispatch.Run{traced, plain}, nil)

	spans := b.spans.GetSpans()
	require.Len(t, spans, 1)
	require.Equal(t, "publish run.{class}.{pp}", spans[0].Name)
	require.Equal(t, parent.SpanContext().SpanID(), spans[0].Parent.SpanID())
	carried := trace.SpanContextFromContext(event.ExtractTrace(t.Context(), b.bus.msgs[0].Header))
	require.Equal(t, spans[0].SpanContext.SpanID(), carried.SpanID())
	require.Empty(t, b.bus.msgs[1].Header.Get("traceparent"))
}

func TestSignal_ReachesTheListenersOfTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := run("a")
	b.Signal(t.Context(), dispatch.Signal{SKey: r.SKey, Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: 9, Gen: 3, RunID: r.RunID})
	require.Equal(t, bus.ControlSubject(r.SKey), b.bus.notified[0].Subject)
	var got runv1.Control
	require.NoError(t, proto.Unmarshal(b.bus.notified[0].Data, &got))
	want := &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: 9, Gen: 3, RunId: r.RunID.String()}
	require.True(t, proto.Equal(want, &got))
}

func TestBury_TellsOperatorsOfDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	known := dispatch.Letter{ID: uuid.New(), Tenant: "acme", SKey: "s", MsgUID: "u1", Reason: "no"}
	unknown := dispatch.Letter{ID: uuid.New(), MsgUID: "u2", Reason: "unreadable"}
	odd := dispatch.Letter{ID: uuid.New(), Tenant: "a.b", MsgUID: "u3", Reason: "no"}
	require.NoError(t, b.Start(t.Context()))
	b.Bury(t.Context(), []dispatch.Letter{known, unknown, odd})
	b.Bury(t.Context(), nil)
	require.NoError(t, b.Stop(t.Context()))
	require.Len(t, b.bus.msgs, 3)
	for i, subject := range []string{"dlq.ingress.acme", "dlq.ingress.unknown", "dlq.ingress.unknown"} {
		require.Equal(t, subject, b.bus.msgs[i].Subject)
	}
	require.Equal(t, known.ID.String(), b.bus.msgs[0].ID)
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"tenant":"acme","skey":"s","msg_uid":"u1","reason":"no"}`, known.ID), string(b.bus.msgs[0].Data))
}
