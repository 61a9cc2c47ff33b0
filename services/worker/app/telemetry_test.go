package app_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// received starts and ends the span of an accepted message and returns its context.
func (b *bench) received(t *testing.T, name string) (trace.SpanContext, string) {
	t.Helper()
	ctx, span := b.backends.Traces.Tracer("test").Start(t.Context(), name)
	span.End()
	return span.SpanContext(), event.Traceparent(ctx)
}

func (b *bench) span(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, s := range b.spans.Ended() {
		if s.Name() == name {
			return s
		}
	}
	require.FailNow(t, "span is missing", name)
	return nil
}

func TestTrace_OneTraceFromTheMessageToTheDoorbell(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		if n == 0 {
			return call("look", `{}`), nil
		}
		return echo(ctx, n, req, say)
	}})
	c := newChat(webhook, "a")
	parent, traceparent := b.received(t, "first")
	linked, other := b.received(t, "second")
	from := func(tp string) func(*store.AdmitMessage) {
		return func(m *store.AdmitMessage) { m.Traceparent, m.Group = tp, "album" }
	}
	a := b.admit(t, c.row("m1", "one", from(traceparent)), c.row("m2", "two", from(other)))[0]
	b.ring(t, c, a, 0)
	bell := b.doorbells(t, webhook, 1)[0]
	b.lifecycle(t, a.RunID, event.RunFinished)
	b.stop(t, patience)

	run := b.span(t, "invoke_agent default")
	require.Equal(t, parent.SpanID(), run.Parent().SpanID())
	require.Equal(t, parent.TraceID(), run.SpanContext().TraceID())
	require.Equal(t, trace.SpanKindInternal, run.SpanKind())
	require.Len(t, run.Links(), 1)
	require.Equal(t, linked.SpanID(), run.Links()[0].SpanContext.SpanID())
	require.Contains(t, run.Attributes(), attribute.String("gen_ai.conversation.id", c.skey))
	require.Contains(t, run.Attributes(), attribute.String("gen_ai.agent.name", config.DefaultProfile))
	require.Contains(t, run.Attributes(), attribute.String("hermes.run.outcome", "done"))

	for _, name := range []string{"chat m-1", "execute_tool look", "turn commit", "publish out.{platform}.{pp}"} {
		require.Equal(t, parent.TraceID(), b.span(t, name).SpanContext().TraceID(), name)
	}
	require.Equal(t, run.SpanContext().SpanID(), b.span(t, "turn execute").Parent().SpanID())
	require.Equal(t, b.span(t, "turn execute").SpanContext().SpanID(), b.span(t, "chat m-1").Parent().SpanID())
	publish := b.span(t, "publish out.{platform}.{pp}")
	require.Equal(t, run.SpanContext().SpanID(), publish.Parent().SpanID())
	carried := trace.SpanContextFromContext(event.ExtractTrace(t.Context(), bell.Header))
	require.Equal(t, publish.SpanContext().SpanID(), carried.SpanID())
}

func TestLifecycle_TellsTheStepsOfARunInOrder(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: func(_ context.Context, n int, _ llm.Request, _ func(string)) (llm.Response, error) {
		if n == 0 {
			return call("look", `{}`), nil
		}
		return text("ok"), nil
	}})
	c := newChat(event.PlatformAPI, "a")
	a := b.send(t, c, "m1", "hi")
	var got []string
	events := b.lifecycle(t, a.RunID, event.ProcessingCompleted)
	for i, e := range events {
		require.Equal(t, int64(i+1), e.N)
		require.Equal(t, []any{a.Gen, c.skey, "m1", config.DefaultTenant, config.DefaultProfile},
			[]any{e.Gen, e.SKey, e.MsgUID, e.Tenant, e.Profile})
		require.Equal(t, "c1", e.Address.ChatID)
		require.Empty(t, e.Content)
		got = append(got, string(e.Type)+" "+e.Name+e.Outcome)
	}
	require.Equal(t, []string{
		"run_started ", "state_changed preprocessok", "state_changed recogniseok", "state_changed routeok",
		"llm_started m-1", "llm_finished m-1ok", "tool_started look", "tool_finished lookok",
		"llm_started m-1", "llm_finished m-1ok",
		"state_changed executeok", "state_changed renderok", "state_changed commitok",
		"run_finished done", "processing_completed done",
	}, got)
	require.Equal(t, []int64{3, 2}, []int64{events[9].InputTokens, events[9].OutputTokens})
}

func TestLifecycle_LeavesTheCompletionToEgressIfSomethingIsDelivered(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	b.lifecycle(t, a.RunID, event.RunFinished)
	b.stop(t, patience) // what was emitted is published
	require.Empty(t, b.events)
}

func TestMetrics_SlotsRefusalsAndTurns(t *testing.T) {
	t.Parallel()
	started, held := make(chan struct{}), make(chan struct{})
	b := newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		close(started)
		<-held
		return echo(ctx, n, req, say)
	}})
	b.start(t)
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	receive(t, started)
	b.ring(t, c, a, 1)
	require.Eventually(t, func() bool { return b.sum(t, "hermes_claims_refused_total") == 1 }, patience, time.Millisecond)
	require.Equal(t, int64(1), b.sum(t, "hermes_worker_slots_used"))
	require.Equal(t, int64(16), b.sum(t, "hermes_worker_slots"))
	close(held)
	b.ended(t, a.RunID)
	require.Eventually(t, func() bool { return b.sum(t, "hermes_worker_slots_used") == 0 }, patience, time.Millisecond)
	require.Equal(t, int64(1), b.sum(t, "hermes_turn_duration_seconds"))
}

// sum adds the points of a metric, of a histogram their counts.
func (b *bench) sum(t *testing.T, name string) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, b.metrics.Collect(t.Context(), &all))
	var total int64
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				total += points(m.Data)
			}
		}
	}
	return total
}

func points(data metricdata.Aggregation) (total int64) {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			total += p.Value
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			total += p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			total += int64(p.Count)
		}
	}
	return total
}
