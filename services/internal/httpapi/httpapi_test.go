package httpapi_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

func door(h httpapi.Handler) (http.Handler, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	r := httpapi.NewRoutes(slog.New(slog.DiscardHandler))
	r.Handle(http.MethodPost, "/v1/things/{id}", h)
	return r.Frame(httpapi.Telemetry{
		Traces: trace.NewTracerProvider(trace.WithSpanProcessor(spans)), Meters: metricnoop.NewMeterProvider(), Public: true,
	}), spans
}

func call(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	h.ServeHTTP(w, r)
	return w
}

func TestRoutes_AnswerEveryErrorInOneShape(t *testing.T) {
	t.Parallel()
	h, _ := door(func(_ http.ResponseWriter, r *http.Request) error {
		switch r.PathValue("id") {
		case "busy":
			return httpapi.Unavailable("broker_unavailable", "later")
		case "secret":
			return errors.New("password=hunter2")
		default:
			return httpapi.Invalid("id", "id: is wrong")
		}
	})
	for _, c := range []struct {
		method, path, want string
		status             int
	}{
		{"POST", "/v1/things/x", `{"error":{"message":"id: is wrong","type":"invalid_request_error","param":"id","code":"invalid_field"}}`, 400},
		{"POST", "/v1/things/secret", `{"error":{"message":"internal error","type":"internal_error","param":null,"code":"internal"}}`, 500},
		{"POST", "/v1/things/busy", `{"error":{"message":"later","type":"unavailable_error","param":null,"code":"broker_unavailable"}}`, 503},
		{"GET", "/v1/things/x", `{"error":{"message":"only POST is allowed","type":"invalid_request_error","param":null,"code":"method_not_allowed"}}`, 405},
		{"POST", "/v1/other", `{"error":{"message":"path not found","type":"not_found_error","param":null,"code":"not_found"}}`, 404},
		{"POST", "/v1/things//x", `{"error":{"message":"path not found","type":"not_found_error","param":null,"code":"not_found"}}`, 404},
		{"POST", "/v1/things/../x", `{"error":{"message":"path not found","type":"not_found_error","param":null,"code":"not_found"}}`, 404},
	} {
		w := call(h, c.method, c.path, "")
		require.Equal(t, c.status, w.Code, c.path)
		require.JSONEq(t, c.want, w.Body.String(), c.path)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	}
	require.Equal(t, "5", call(h, "POST", "/v1/things/busy", "").Header().Get("Retry-After"))
}

func TestWriteError_RoundsRetryAfterUp(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{0: "", time.Millisecond: "1", time.Second: "1", 1200 * time.Millisecond: "2"} {
		w := httptest.NewRecorder()
		httpapi.WriteError(w, &httpapi.Error{Status: http.StatusTooManyRequests, Message: "m", RetryAfter: wait})
		require.Equal(t, want, w.Header().Get("Retry-After"), wait)
	}
}

func TestRoutes_ListsWhatIsHandled(t *testing.T) {
	t.Parallel()
	r := httpapi.NewRoutes(slog.New(slog.DiscardHandler))
	r.Handle(http.MethodPost, "/v1/b", nil)
	r.Handle(http.MethodGet, "/v1/a", nil)
	require.Equal(t, []httpapi.Route{{Method: "POST", Pattern: "/v1/b"}, {Method: "GET", Pattern: "/v1/a"}}, r.All())
}

func TestRoutes_KeepEscapedIDsWhole(t *testing.T) {
	t.Parallel()
	var got string
	h, _ := door(func(_ http.ResponseWriter, r *http.Request) error {
		got = r.PathValue("id")
		return nil
	})
	for path, want := range map[string]string{"a%2Fb": "a/b", "%2E%2E": "..", "a%00": "a\x00", "%E7%BE%A4": "群", "%25": "%"} {
		require.Equal(t, http.StatusOK, call(h, http.MethodPost, "/v1/things/"+path, "").Code, path)
		require.Equal(t, want, got)
	}
}

func TestFrame_BeginsATraceOfItsOwnAtPublicDoors(t *testing.T) {
	t.Parallel()
	h, spans := door(func(http.ResponseWriter, *http.Request) error { return nil })
	call(h, http.MethodPost, "/v1/things/x", "")
	require.Len(t, spans.Ended(), 1)
	span := spans.Ended()[0]
	require.Equal(t, "POST /v1/things/{id}", span.Name())
	require.False(t, span.Parent().IsValid())
	require.Len(t, span.Links(), 1)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.Links()[0].SpanContext.TraceID().String())
}

func TestFromAccept_NamesTheClientsField(t *testing.T) {
	t.Parallel()
	rename := map[string]string{"platform_message_id": "Idempotency-Key"}
	err := httpapi.FromAccept(&accept.InvalidError{Field: "platform_message_id", Problem: "is bad"}, rename)
	require.Equal(t, httpapi.Invalid("Idempotency-Key", "Idempotency-Key: is bad"), err)

	e, ok := errors.AsType[*httpapi.Error](httpapi.FromAccept(&accept.InvalidError{Field: "text", Problem: "long", TooLarge: true}, nil))
	require.True(t, ok)
	require.Equal(t, http.StatusRequestEntityTooLarge, e.Status)
	e, ok = errors.AsType[*httpapi.Error](httpapi.FromAccept(accept.ErrUnavailable, nil))
	require.True(t, ok)
	require.Equal(t, http.StatusServiceUnavailable, e.Status)
}
