package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

// maxErrorBody bounds what is read of a refusal, maxMessage what is kept of its text.
const (
	maxErrorBody = 64 << 10
	maxMessage   = 300
)

// refusals turns every response that is not a success into an *llm.Error, before the SDK sees it: the SDK's own error
// holds the request with its credential, and forgets the status of bodies that are not JSON.
func refusals(apiKey string) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		resp, err := next(req)
		if err != nil || resp.StatusCode < http.StatusBadRequest {
			return resp, err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		if err != nil {
			body = nil // the status says enough
		}
		return nil, refusal(resp, body, apiKey)
	}
}

// problem is what providers say about a failure. Codes are strings, numbers or null.
type problem struct {
	Code    any    `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (p problem) code() string {
	switch code := p.Code.(type) {
	case string:
		return code
	case float64:
		return strconv.Itoa(int(code))
	default:
		return ""
	}
}

func parseProblem(body []byte) problem {
	var wrapped struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &wrapped) != nil { // not JSON: an HTML page of a proxy
		return problem{}
	}
	p := problem{Message: wrapped.Message}
	var text string
	switch {
	case json.Unmarshal(wrapped.Error, &text) == nil:
		p.Message = text
	case json.Unmarshal(wrapped.Error, &p) != nil: // no such field
		return p
	}
	return p
}

func refusal(resp *http.Response, body []byte, apiKey string) *llm.Error {
	p := parseProblem(body)
	kind := kindOf(resp.StatusCode, p)
	return &llm.Error{
		Kind: kind, Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header), Message: messageOf(kind, resp.StatusCode, p, apiKey),
	}
}

// messageOf keeps the provider's words, except about credentials: those may quote them.
func messageOf(kind llm.ErrorKind, status int, p problem, apiKey string) string {
	if kind == llm.KindAuth {
		return "the provider does not accept the credential"
	}
	text := cmp.Or(p.Message, p.code(), p.Type, http.StatusText(status), "no reason given")
	if apiKey != "" {
		text = strings.ReplaceAll(text, apiKey, "[credential]")
	}
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	return strings.ToValidUTF8(text, "")
}

func kindOf(status int, p problem) llm.ErrorKind {
	if kind, ok := kindOfCode(p); ok {
		return kind
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return llm.KindAuth
	case http.StatusPaymentRequired:
		return llm.KindBilling
	case http.StatusNotFound:
		return llm.KindModelNotFound
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return llm.KindTimeout
	case http.StatusRequestEntityTooLarge:
		return llm.KindContextOverflow
	case http.StatusTooManyRequests:
		return llm.KindRateLimit
	case http.StatusServiceUnavailable, 529: // 529: "site is overloaded", not registered
		return llm.KindOverloaded
	}
	if status >= http.StatusInternalServerError {
		return llm.KindServer
	}
	return llm.KindBadRequest
}

// kindOfCode knows the codes that say more than the status.
func kindOfCode(p problem) (llm.ErrorKind, bool) {
	for _, code := range []string{p.code(), p.Type} {
		switch code {
		case "context_length_exceeded", "string_above_max_length":
			return llm.KindContextOverflow, true
		case "insufficient_quota", "billing_hard_limit_reached", "billing_not_active":
			return llm.KindBilling, true
		case "invalid_api_key", "authentication_error", "permission_error":
			return llm.KindAuth, true
		case "model_not_found":
			return llm.KindModelNotFound, true
		case "content_filter", "content_policy_violation":
			return llm.KindPolicy, true
		case "rate_limit_exceeded", "rate_limit_error":
			return llm.KindRateLimit, true
		case "overloaded_error", "engine_overloaded":
			return llm.KindOverloaded, true
		case "server_error", "api_error", "internal_error":
			return llm.KindServer, true
		}
	}
	// Compatible servers give no code, but all of them say it in about these words.
	text := strings.ToLower(p.Message)
	if strings.Contains(text, "maximum context length") || strings.Contains(text, "context length exceeded") {
		return llm.KindContextOverflow, true
	}
	return "", false
}

// classify turns what the SDK returns into an *llm.Error.
func classify(err error) *llm.Error {
	var known *llm.Error
	if errors.As(err, &known) {
		return known
	}
	var inStream *ssestream.StreamError
	if errors.As(err, &inStream) {
		return streamError(inStream)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &llm.Error{Kind: llm.KindServer, Message: "the stream holds what is not JSON", Err: err}
	}
	return networkError(err)
}

// streamError is a failure that the provider reports inside a stream that began well.
func streamError(e *ssestream.StreamError) *llm.Error {
	p := parseProblem(e.Event.Data)
	// Gateways put the status of the server behind them into the code. Without one it is the provider's failure.
	status, err := strconv.Atoi(p.code())
	if err != nil {
		status = http.StatusInternalServerError
	}
	kind := kindOf(status, p)
	return &llm.Error{Kind: kind, Message: "in the stream: " + cmp.Or(p.Type, p.code(), "error without a code")}
}

// networkError leaves out the URL, which may hold a credential.
func networkError(err error) *llm.Error {
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	kind := llm.KindNetwork
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		kind = llm.KindTimeout
	}
	return &llm.Error{Kind: kind, Message: err.Error(), Err: err}
}

// retryAfter reads both forms of the header. A date counts from the provider's own clock where it tells the time.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 && seconds < 1e9 {
		return time.Duration(seconds * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}
