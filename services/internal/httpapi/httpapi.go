// Package httpapi holds what all HTTP doors have in common: JSON answers, one shape of errors, and the frame around the
// handlers.
package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/accept"
)

// The types of errors.
const (
	TypeInvalid     = "invalid_request_error"
	TypeAuth        = "authentication_error"
	TypePermission  = "permission_error"
	TypeNotFound    = "not_found_error"
	TypeConflict    = "conflict_error"
	TypeRateLimit   = "rate_limit_error"
	TypeTimeout     = "timeout_error"
	TypeUnavailable = "unavailable_error"
	TypeInternal    = "internal_error"
)

// Error is an error as clients see it. It never holds a secret nor the content of a request.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Type    string `json:"type"`
	// Param names the field, header or parameter that is wrong; "" is null in JSON.
	Param string `json:"-"`
	// Code is stable, for programs.
	Code string `json:"code"`
	// RetryAfter becomes the header of that name, in whole seconds and never less.
	RetryAfter time.Duration `json:"-"`
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON returns the form that clients of OpenAI know, where param is always there.
func (e *Error) MarshalJSON() ([]byte, error) {
	type members Error
	var param *string
	if e.Param != "" {
		param = &e.Param
	}
	return json.Marshal(struct {
		*members
		Param *string `json:"param"`
	}{(*members)(e), param})
}

// Invalid is a request that names a wrong field.
func Invalid(param, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalid, Param: param, Code: "invalid_field", Message: message}
}

// NotFound is also the answer for what belongs to somebody else.
func NotFound(what string) *Error {
	return &Error{Status: http.StatusNotFound, Type: TypeNotFound, Code: "not_found", Message: what + " not found"}
}

const retrySoon = 5 * time.Second

// Unavailable is a dependency that does not answer; nothing was acknowledged.
func Unavailable(code, message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: TypeUnavailable, Code: code, Message: message, RetryAfter: retrySoon}
}

// FromAccept turns an error of accept into that of the request. rename maps the fields of a message to those that the
// client knows; nil keeps them.
func FromAccept(err error, rename map[string]string) error {
	if invalid, ok := errors.AsType[*accept.InvalidError](err); ok {
		field := invalid.Field
		if name, ok := rename[field]; ok {
			field = name
		}
		e := Invalid(field, field+": "+invalid.Problem)
		if invalid.TooLarge {
			e.Status, e.Code = http.StatusRequestEntityTooLarge, "too_large"
		}
		return e
	}
	if errors.Is(err, accept.ErrUnavailable) {
		return Unavailable("broker_unavailable", "the message was not accepted, send it again with the same id")
	}
	return err
}

// WriteJSON writes v as the answer.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client hung up: nobody to tell
}

// WriteError writes err as an error answer; what is no *Error becomes a 500 without its text.
func WriteError(w http.ResponseWriter, err error) {
	WriteErrorWith(w, err, nil)
}

// WriteErrorWith adds fields beside "error".
func WriteErrorWith(w http.ResponseWriter, err error, fields map[string]any) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Status: http.StatusInternalServerError, Type: TypeInternal, Code: "internal", Message: "internal error"}
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	body := map[string]any{"error": e}
	for k, v := range fields {
		body[k] = v
	}
	WriteJSON(w, e.Status, body)
}

// Handler is a handler that returns what went wrong instead of writing it. It must not return an error once it has
// written.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Routes collects the routes of a door.
type Routes struct {
	mux    *http.ServeMux
	logger *slog.Logger
	routes []Route
}

// Route is one method of one path.
type Route struct{ Method, Pattern string }

// All returns the routes in the order in which they were handled.
func (r *Routes) All() []Route { return slices.Clone(r.routes) }

// NewRoutes answers every unknown path with 404.
func NewRoutes(logger *slog.Logger) *Routes {
	r := &Routes{mux: http.NewServeMux(), logger: logger}
	r.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { WriteError(w, NotFound("path")) })
	return r
}

// Handle serves one method of one path, other methods of it get 405 unless they are handled too.
func (r *Routes) Handle(method, pattern string, h Handler) {
	r.routes = append(r.routes, Route{method, pattern})
	r.mux.HandleFunc(method+" "+pattern, func(w http.ResponseWriter, req *http.Request) {
		err := h(w, req)
		if err == nil {
			return
		}
		if _, known := errors.AsType[*Error](err); !known && req.Context().Err() == nil {
			r.logger.ErrorContext(req.Context(), "request failed", "route", pattern, "err", err)
		}
		WriteError(w, err)
	})
	r.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", method)
		WriteError(w, &Error{
			Status: http.StatusMethodNotAllowed, Type: TypeInvalid, Code: "method_not_allowed", Message: "only " + method + " is allowed",
		})
	})
}

// Telemetry is what the frame reports with.
type Telemetry struct {
	Traces trace.TracerProvider
	Meters metric.MeterProvider
	// Public doors begin a trace of their own for every request and link to the one that the client names.
	Public bool
}

// Frame returns the routes with a span and metrics around each request.
func (r *Routes) Frame(t Telemetry) http.Handler {
	return otelhttp.NewHandler(canonical(r.mux), "http",
		otelhttp.WithTracerProvider(t.Traces),
		otelhttp.WithMeterProvider(t.Meters),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return t.Public }),
	)
}

// canonical refuses paths that the mux would redirect to a cleaned one: an empty or a dotted id would silently become
// another path.
func canonical(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		if path.Clean("/"+escaped) != strings.TrimSuffix(escaped, "/") && escaped != "/" {
			WriteError(w, NotFound("path"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// CheckJSON refuses a body that does not claim to be JSON in UTF-8. Browsers send such a claim to other sites only after
// asking, so it also keeps web pages from posting here.
func CheckJSON(r *http.Request) error {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	jsonType := kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
	if charset := params["charset"]; err != nil || !jsonType || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &Error{
			Status: http.StatusUnsupportedMediaType, Type: TypeInvalid, Param: "Content-Type", Code: "unsupported_media_type",
			Message: "Content-Type: must be application/json",
		}
	}
	return nil
}

// ReadBody reads at most limit bytes.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, &Error{
			Status: http.StatusRequestEntityTooLarge, Type: TypeInvalid, Param: "body", Code: "too_large",
			Message: "body: over " + strconv.FormatInt(limit, 10) + " bytes",
		}
	}
	if err != nil {
		return nil, Invalid("body", "body: was not received completely")
	}
	return body, nil
}
