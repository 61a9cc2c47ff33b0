package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/telemetry"
)

// start returns telemetry whose spans end up in the recorder and whose logs end up in the buffer.
func start(t *testing.T) (*telemetry.Telemetry, *tracetest.SpanRecorder, *bytes.Buffer) {
	t.Helper()
	var logs bytes.Buffer
	spans := tracetest.NewSpanRecorder()
	tel, err := telemetry.New(t.Context(), config.Default().Telemetry, telemetry.Options{
		Service: "hermes-test", Version: "v1", Logs: &logs, SpanProcessor: spans,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	return tel, spans, &logs
}

func TestMessagingSpans_LinkPublisherAndConsumerThroughHeaders(t *testing.T) {
	t.Parallel()
	tel, recorder, _ := start(t)
	tracer := tel.Traces.Tracer("test")
	m := bus.Msg{Subject: "ing.00.t.s"}
	_, publish := telemetry.StartPublish(t.Context(), tracer, telemetry.TemplateIngest, &m)
	telemetry.EndSpan(publish, nil)
	_, process := telemetry.StartProcess(context.Background(), tracer, telemetry.TemplateIngest, m)
	telemetry.EndSpan(process, context.DeadlineExceeded)

	ended := recorder.Ended()
	require.Len(t, ended, 2)
	require.Equal(t, "publish ing.{pp}.{tenant}.{skey}", ended[0].Name())
	require.Equal(t, trace.SpanKindProducer, ended[0].SpanKind())
	require.Equal(t, "process ing.{pp}.{tenant}.{skey}", ended[1].Name())
	require.Equal(t, trace.SpanKindConsumer, ended[1].SpanKind())
	require.Equal(t, ended[0].SpanContext().SpanID(), ended[1].Parent().SpanID())
	require.Equal(t, "context deadline exceeded", ended[1].Status().Description)
	attributes := map[string]string{}
	for _, a := range ended[0].Attributes() {
		attributes[string(a.Key)] = a.Value.AsString()
	}
	require.Equal(t, map[string]string{
		"messaging.system": "nats", "messaging.operation.name": "publish", "messaging.operation.type": "send",
		"messaging.destination.template": "ing.{pp}.{tenant}.{skey}",
	}, attributes)
}

func TestSpans_WithoutACollectorOnlyPassTheirIDsOn(t *testing.T) {
	t.Parallel()
	tel, err := telemetry.New(t.Context(), config.Default().Telemetry, telemetry.Options{Service: "hermes-test", Logs: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	tracer := tel.Traces.Tracer("test")
	m := bus.Msg{Subject: "ing.00.t.s"}
	_, publish := telemetry.StartPublish(t.Context(), tracer, telemetry.TemplateIngest, &m)
	_, process := telemetry.StartProcess(context.Background(), tracer, telemetry.TemplateIngest, m)
	require.False(t, publish.IsRecording())
	require.False(t, process.IsRecording())
	require.True(t, publish.SpanContext().IsValid())
	require.Equal(t, publish.SpanContext().TraceID(), process.SpanContext().TraceID())
}

func TestLogs_CarryTheTrace(t *testing.T) {
	t.Parallel()
	tel, _, logs := start(t)
	ctx, span := tel.Traces.Tracer("test").Start(t.Context(), "work")
	tel.Logger.WithGroup("").With("partition", 7).InfoContext(ctx, "hello")
	span.End()
	var line map[string]any
	require.NoError(t, json.Unmarshal(logs.Bytes(), &line))
	require.Equal(t, span.SpanContext().TraceID().String(), line["trace_id"])
	require.Equal(t, "hermes-test", line["service"])
	require.EqualValues(t, 7, line["partition"])
}

func TestMetrics_AreScrapedInPrometheusFormat(t *testing.T) {
	t.Parallel()
	tel, _, _ := start(t)
	counter, err := tel.Meters.Meter("test").Int64Counter("hermes_things_total")
	require.NoError(t, err)
	counter.Add(t.Context(), 3)
	w := httptest.NewRecorder()
	tel.MetricsHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Contains(t, w.Body.String(), "\nhermes_things_total 3\n")
	require.Contains(t, w.Body.String(), "go_goroutines")
}

func TestNew_NamesTheKeyThatIsWrong(t *testing.T) {
	t.Parallel()
	cfg := config.Default().Telemetry
	cfg.LogFormat = "xml"
	_, err := telemetry.New(t.Context(), cfg, telemetry.Options{Service: "s"})
	require.EqualError(t, err, `telemetry.log_format: "xml" is neither json nor text`)
	cfg.LogLevel = "loud"
	_, err = telemetry.New(t.Context(), cfg, telemetry.Options{Service: "s"})
	require.ErrorContains(t, err, "telemetry.log_level")
}

func TestSampling_ZeroRecordsNothing(t *testing.T) {
	t.Parallel()
	cfg := config.Default().Telemetry
	cfg.SampleRatio = 0
	recorder := tracetest.NewSpanRecorder()
	tel, err := telemetry.New(t.Context(), cfg, telemetry.Options{Service: "s", SpanProcessor: recorder})
	require.NoError(t, err)
	_, span := tel.Traces.Tracer("test").Start(t.Context(), "work")
	span.End()
	require.Empty(t, recorder.Ended())
	require.NoError(t, tel.Shutdown(t.Context()))
}
