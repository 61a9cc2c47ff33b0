// Package fakemodel is a model provider for tests: a local HTTP server that speaks the OpenAI Chat Completions protocol,
// streamed or not, and answers as a script says.
//
// A [Server] is an http.Handler, safe for concurrent use. It records every request.
package fakemodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Request is what arrived.
type Request struct {
	Model         string    `json:"model"`
	Messages      []Message `json:"messages"`
	Tools         []Tool    `json:"tools"`
	Stream        bool      `json:"stream"`
	MaxTokens     int       `json:"max_tokens"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	// Header and Body are the request as it was on the wire.
	Header http.Header `json:"-"`
	Body   []byte      `json:"-"`
}

// Message is a message on the wire.
type Message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []WireCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`
}

// WireCall is a tool call on the wire.
type WireCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// Tool is a tool on the wire.
type Tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// Last returns the content of the last message of a role, "" if there is none.
func (r Request) Last(role string) string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == role {
			return m.Content
		}
	}
	return ""
}

// Script answers the n-th request, counted from 0. It may block; it is called from the goroutine of the request.
type Script func(n int, req Request) Reply

// Sequence gives the replies in order and repeats the last one.
func Sequence(replies ...Reply) Script {
	return func(n int, _ Request) Reply { return replies[min(n, len(replies)-1)] }
}

// Server is the provider.
type Server struct {
	// URL is the base URL for clients, set by Start.
	URL string

	script Script

	mu       sync.Mutex
	requests []Request
}

// New returns a server that is not listening: an http.Handler.
func New(script Script) *Server { return &Server{script: script} }

// Start listens on a free port until the test ends.
func Start(tb testing.TB, script Script) *Server {
	tb.Helper()
	s := New(script)
	listener := httptest.NewServer(s)
	tb.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	s.URL = listener.URL + "/v1"
	return s
}

// Requests returns what arrived so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP answers chat completions; any other path is not found.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		http.NotFound(w, r)
		return
	}
	var req Request
	var body json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.Header, req.Body = r.Header.Clone(), body
	reply := s.script(s.record(req), req)
	reply.write(&exchange{w: w, r: r, req: req})
}

func (s *Server) record(req Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	return len(s.requests) - 1
}

// Call is a tool call of a reply.
type Call struct {
	ID        string
	Name      string
	Arguments string
}

// Reply is one scripted answer. The zero value is an empty answer.
type Reply struct {
	// Text is streamed word by word, then Calls, their arguments in two pieces.
	Text  string
	Calls []Call
	// Finish overrides the reason, which else is "stop" or "tool_calls".
	Finish string
	// InputTokens and OutputTokens are the usage; no usage is sent if both are 0.
	InputTokens, OutputTokens int
	// Status refuses the request instead, with Header and Body.
	Status int
	Header map[string]string
	Body   string
	// Chunks replaces the stream by these JSON objects; "[DONE]" follows.
	Chunks []string
	// Break ends the connection after the text, in the middle of the answer.
	Break bool
	// Hold keeps the stream open after the text until the channel is closed or the client is gone.
	Hold <-chan struct{}
}

type exchange struct {
	w   http.ResponseWriter
	r   *http.Request
	req Request
}

func (reply Reply) write(x *exchange) {
	switch {
	case reply.Status != 0:
		for name, value := range reply.Header {
			x.w.Header().Set(name, value)
		}
		x.w.WriteHeader(reply.Status)
		_, _ = fmt.Fprint(x.w, reply.Body) // a client that is gone needs no answer
	case x.req.Stream:
		reply.stream(x)
	default:
		reply.whole(x)
	}
}

func (reply Reply) finish() string {
	if len(reply.Calls) > 0 {
		return cmp.Or(reply.Finish, "tool_calls")
	}
	return cmp.Or(reply.Finish, "stop")
}

type object map[string]any

func (x *exchange) model() string { return cmp.Or(x.req.Model, "fake") }

func (reply Reply) stream(x *exchange) {
	x.w.Header().Set("Content-Type", "text/event-stream")
	if reply.Chunks != nil {
		for _, chunk := range reply.Chunks {
			x.send(chunk)
		}
		x.send("[DONE]")
		return
	}
	x.delta(object{"role": "assistant"}, nil)
	for word := range strings.SplitAfterSeq(reply.Text, " ") {
		if word != "" {
			x.delta(object{"content": word}, nil)
		}
	}
	if reply.Hold != nil {
		select {
		case <-reply.Hold:
		case <-x.r.Context().Done():
			return
		}
	}
	if reply.Break {
		panic(http.ErrAbortHandler) // the documented way to cut a connection
	}
	for i, call := range reply.Calls {
		x.call(i, call)
	}
	x.delta(object{}, reply.finish())
	x.usage(reply)
	x.send("[DONE]")
}

func (x *exchange) call(i int, call Call) {
	half := len(call.Arguments) / 2
	first := object{
		"index": i, "id": call.ID, "type": "function",
		"function": object{"name": call.Name, "arguments": call.Arguments[:half]},
	}
	second := object{"index": i, "function": object{"arguments": call.Arguments[half:]}}
	x.delta(object{"tool_calls": []object{first}}, nil)
	x.delta(object{"tool_calls": []object{second}}, nil)
}

func (x *exchange) delta(delta object, finish any) {
	x.chunk(object{"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}})
}

func (x *exchange) usage(reply Reply) {
	if !x.req.StreamOptions.IncludeUsage || reply.InputTokens+reply.OutputTokens == 0 {
		return
	}
	x.chunk(object{"choices": []object{}, "usage": reply.usage()})
}

func (reply Reply) usage() object {
	return object{
		"prompt_tokens": reply.InputTokens, "completion_tokens": reply.OutputTokens,
		"total_tokens": reply.InputTokens + reply.OutputTokens,
	}
}

func (x *exchange) chunk(fields object) {
	fields["id"], fields["object"], fields["model"] = "chatcmpl-fake", "chat.completion.chunk", x.model()
	x.send(encode(fields))
}

func (x *exchange) send(data string) {
	_, _ = fmt.Fprintf(x.w, "data: %s\n\n", data) // a client that is gone shows as the end of the request's context
	if flusher, ok := x.w.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (reply Reply) whole(x *exchange) {
	message := object{"role": "assistant", "content": reply.Text}
	var calls []object
	for _, call := range reply.Calls {
		calls = append(calls, object{
			"id": call.ID, "type": "function",
			"function": object{"name": call.Name, "arguments": call.Arguments},
		})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprint(x.w, encode(object{
		"id": "chatcmpl-fake", "object": "chat.completion", "model": x.model(), "usage": reply.usage(),
		"choices": []object{{"index": 0, "message": message, "finish_reason": reply.finish()}},
	}))
}

func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // maps of strings and numbers: cannot fail
		panic(err)
	}
	return string(raw)
}
