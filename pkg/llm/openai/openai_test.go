package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/llm/llmtest"
	"github.com/hermes-runtime/hermes/pkg/llm/openai"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
)

const secret = "sk-test-0123456789"

func model(s *fakemodel.Server) *openai.Model {
	return openai.New(openai.Config{BaseURL: s.URL, APIKey: secret, Model: "default-model"})
}

func ask(text string) llm.Request {
	return llm.Request{Model: "m1", Messages: []llm.Message{{Role: llm.User, Text: text}}}
}

func TestModel_Conformance(t *testing.T) {
	t.Parallel()
	llmtest.Run(t, func(t *testing.T) llmtest.Subject {
		t.Helper()
		server := fakemodel.Start(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
			if len(req.Tools) > 0 && req.Messages[len(req.Messages)-1].Role == "user" {
				return fakemodel.Reply{Calls: []fakemodel.Call{{ID: "c1", Name: req.Tools[0].Function.Name, Arguments: `{"path":"."}`}}}
			}
			return fakemodel.Reply{Text: "several words as an answer"}
		})
		return llmtest.Subject{
			Model: model(server), Ask: "hello", Do: "list the files",
			Tool: llm.ToolSpec{Name: "list_files", Parameters: json.RawMessage(`{"type":"object"}`)},
		}
	})
}

func TestAGT10_SeveralUserMessagesInARow(t *testing.T) {
	t.Parallel()
	server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Text: "a joke"}))
	history := []llm.Message{
		{Role: llm.User, Text: "hi", Name: "Anna"},
		{Role: llm.User, Text: "are you there?", Name: "Ben"},
		{Role: llm.Assistant, Text: "yes"},
		{Role: llm.Assistant, Text: "how can I help?"},
		{Role: llm.User, Text: "tell me a joke"},
	}
	_, err := model(server).Generate(t.Context(), llm.Request{System: "be kind", Messages: history}, nil)
	require.NoError(t, err)

	got := server.Requests()[0]
	require.Equal(t, []fakemodel.Message{
		{Role: "system", Content: "be kind"},
		{Role: "user", Content: "[Anna]: hi\n[Ben]: are you there?"},
		{Role: "assistant", Content: "yes\nhow can I help?"},
		{Role: "user", Content: "tell me a joke"},
	}, got.Messages)
	require.Equal(t, "hi", history[0].Text, "what is stored stays separate")
}

func TestGenerate_SendsToolsAndExchangesAsTheProtocolWants(t *testing.T) {
	t.Parallel()
	server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Text: "done", InputTokens: 7, OutputTokens: 2}))
	schema := `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`
	resp, err := model(server).Generate(t.Context(), llm.Request{
		MaxTokens: 99,
		Messages: []llm.Message{
			{Role: llm.User, Text: "read"},
			{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "a", Name: "read", Arguments: `{"path":"x"}`}, {ID: "b", Name: "read", Arguments: `{}`}}},
			{Role: llm.Tool, ToolCallID: "a", Text: "text of x"},
			{Role: llm.Tool, ToolCallID: "b", Text: "path: missing", ToolError: true},
		},
		Tools: []llm.ToolSpec{{Name: "read", Description: "reads a file", Parameters: json.RawMessage(schema)}},
	}, nil)
	require.NoError(t, err)
	require.Equal(t, llm.Usage{InputTokens: 7, OutputTokens: 2}, resp.Usage)
	require.Equal(t, "default-model", resp.Model)
	require.Equal(t, "chatcmpl-fake", resp.ID)

	got := server.Requests()[0]
	require.Equal(t, "Bearer "+secret, got.Header.Get("Authorization"))
	require.True(t, got.Stream)
	require.True(t, got.StreamOptions.IncludeUsage)
	require.Equal(t, 99, got.MaxTokens)
	require.Equal(t, "default-model", got.Model)
	require.Len(t, got.Messages, 4)
	require.Len(t, got.Messages[1].ToolCalls, 2)
	require.Equal(t, "function", got.Messages[1].ToolCalls[0].Type)
	require.JSONEq(t, `{"path":"x"}`, got.Messages[1].ToolCalls[0].Function.Arguments)
	require.Equal(t, fakemodel.Message{Role: "tool", ToolCallID: "a", Content: "text of x"}, got.Messages[2])
	require.Equal(t, "error: path: missing", got.Messages[3].Content)
	require.JSONEq(t, schema, string(got.Tools[0].Function.Parameters))
	require.Equal(t, "reads a file", got.Tools[0].Function.Description)
}

func TestAGT13_StreamChunksWithoutChoices(t *testing.T) {
	t.Parallel()
	server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Chunks: []string{
		`{"choices":[]}`,
		`{"choices":[{"index":0,"delta":{"role":"assistant"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"hi"}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9}}`,
		`{"choices":null}`,
	}}))
	resp, err := model(server).Generate(t.Context(), ask("x"), nil)
	require.NoError(t, err)
	require.Equal(t, "hi", resp.Message.Text)
	require.Equal(t, llm.Usage{InputTokens: 5, OutputTokens: 4}, resp.Usage)
}

func TestGenerate_AccumulatesToolCallsAcrossChunks(t *testing.T) {
	t.Parallel()
	chunk := func(calls string) string {
		return `{"choices":[{"index":0,"delta":{"tool_calls":` + calls + `}}]}`
	}
	end := `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	want := []llm.ToolCall{{ID: "a", Name: "f", Arguments: `{"x":1}`}, {ID: "b", Name: "g", Arguments: `{}`}}
	for name, chunks := range map[string][]string{
		"interleaved by index": {
			chunk(`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]`),
			chunk(`[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]`),
			chunk(`[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":"}"}}]`),
			end,
		},
		"every call at index 0": {
			chunk(`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`),
			chunk(`[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]`),
			end,
		},
		"the id in every piece": {
			chunk(`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]`),
			chunk(`[{"index":0,"id":"a","function":{"arguments":"1}"}}]`),
			chunk(`[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]`),
			end,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Chunks: chunks}))
			resp, err := model(server).Generate(t.Context(), ask("x"), nil)
			require.NoError(t, err)
			require.Equal(t, want, resp.Message.ToolCalls)
			require.Equal(t, llm.FinishToolCalls, resp.Finish)
		})
	}
}

func TestGenerate_ClassifiesRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		want   llm.ErrorKind
	}{
		"unauthorized":               {401, `{"error":{"message":"Incorrect API key provided: ` + secret + `"}}`, llm.KindAuth},
		"forbidden":                  {403, ``, llm.KindAuth},
		"payment required":           {402, `{}`, llm.KindBilling},
		"quota":                      {429, `{"error":{"code":"insufficient_quota","message":"pay"}}`, llm.KindBilling},
		"not found":                  {404, `{"error":{"code":"model_not_found"}}`, llm.KindModelNotFound},
		"request timeout":            {408, ``, llm.KindTimeout},
		"too large":                  {413, `<html>too large</html>`, llm.KindContextOverflow},
		"context length":             {400, `{"error":{"code":"context_length_exceeded","message":"8000"}}`, llm.KindContextOverflow},
		"context length, in words":   {400, `{"message":"This model's maximum context length is 8000 tokens"}`, llm.KindContextOverflow},
		"content policy":             {400, `{"error":{"code":"content_policy_violation"}}`, llm.KindPolicy},
		"bad request":                {400, `{"error":{"message":"no key ` + secret + ` in text","code":null}}`, llm.KindBadRequest},
		"unprocessable":              {422, `{"error":"bad field"}`, llm.KindBadRequest},
		"rate limit":                 {429, `{"error":{"code":"rate_limit_exceeded"}}`, llm.KindRateLimit},
		"server":                     {500, `oops`, llm.KindServer},
		"bad gateway with HTML page": {502, `<html>bad gateway</html>`, llm.KindServer},
		"unavailable":                {503, ``, llm.KindOverloaded},
		"gateway timeout":            {504, ``, llm.KindTimeout},
		"overloaded":                 {529, ``, llm.KindOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Status: c.status, Body: c.body}))
			_, err := model(server).Generate(t.Context(), ask("x"), nil)
			var failed *llm.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, c.want, failed.Kind)
			require.Equal(t, c.status, failed.Status)
			require.NotEmpty(t, failed.Message)
			require.NotContains(t, fmt.Sprintf("%+v %#v", failed, failed), secret)
			require.Len(t, server.Requests(), 1, "the SDK repeats nothing")
		})
	}
}

func TestAGT12_RetryAfterInBothForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header map[string]string
		want   time.Duration
	}{
		"seconds": {map[string]string{"Retry-After": "7"}, 7 * time.Second},
		"date": {map[string]string{
			"Retry-After": "Wed, 31 Dec 2025 23:59:30 GMT", "Date": "Wed, 31 Dec 2025 23:59:00 GMT",
		}, 30 * time.Second},
		"a day":    {map[string]string{"Retry-After": "86400"}, 24 * time.Hour},
		"none":     {nil, 0},
		"nonsense": {map[string]string{"Retry-After": "soon"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Status: 429, Header: c.header}))
			_, err := model(server).Generate(t.Context(), ask("x"), nil)
			var failed *llm.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, llm.KindRateLimit, failed.Kind)
			require.Equal(t, c.want, failed.RetryAfter)
		})
	}
}

func TestAGT11_ErrorInsideAStreamThatBeganWell(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]llm.ErrorKind{
		`{"error":{"type":"overloaded_error","message":"Overloaded"}}`: llm.KindOverloaded,
		`{"error":{"code":429,"message":"slow down"}}`:                 llm.KindRateLimit,
		`{"error":{"message":"something"}}`:                            llm.KindServer,
	} {
		server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Chunks: []string{
			`{"choices":[{"index":0,"delta":{"content":"par"}}]}`, body,
		}}))
		var shown strings.Builder
		_, err := model(server).Generate(t.Context(), ask("x"), func(s string) { shown.WriteString(s) })
		var failed *llm.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, want, failed.Kind)
		require.Equal(t, "par", shown.String(), "the error is never text of the answer")
	}
}

func TestGenerate_StreamThatBreaksIsANetworkError(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]fakemodel.Reply{
		"connection cut":         {Text: "half an", Break: true},
		"ended without a reason": {Chunks: []string{`{"choices":[{"index":0,"delta":{"content":"half an"}}]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakemodel.Start(t, fakemodel.Sequence(reply))
			var shown strings.Builder
			_, err := model(server).Generate(t.Context(), ask("x"), func(s string) { shown.WriteString(s) })
			var failed *llm.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, llm.KindNetwork, failed.Kind)
			require.True(t, llm.Retryable(err))
			require.Equal(t, "half an", shown.String())
		})
	}
}

func TestGenerate_ServerThatIsNotThereIsANetworkErrorWithoutItsURL(t *testing.T) {
	t.Parallel()
	m := openai.New(openai.Config{BaseURL: "http://user:" + secret + "@127.0.0.1:1/v1"})
	_, err := m.Generate(t.Context(), ask("x"), nil)
	var failed *llm.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, llm.KindNetwork, failed.Kind)
	for e := error(failed); e != nil; e = errors.Unwrap(e) {
		require.NotContains(t, e.Error(), secret)
	}
}

func TestGenerate_SilentServerIsATimeout(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	defer close(hold)
	server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Text: "first words", Hold: hold}))
	m := openai.New(openai.Config{BaseURL: server.URL, Timeout: 50 * time.Millisecond})
	_, err := m.Generate(t.Context(), ask("x"), nil)
	var failed *llm.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, llm.KindTimeout, failed.Kind)
}

func TestGenerate_PassesTextOnBeforeTheAnswerIsComplete(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Text: "early bird", Hold: hold}))
	pieces := 0
	resp, err := model(server).Generate(t.Context(), ask("x"), func(string) {
		if pieces++; pieces == 2 {
			close(hold) // the server goes on only after both words were passed on
		}
	})
	require.NoError(t, err)
	require.Equal(t, "early bird", resp.Message.Text)
}

func TestGenerate_StopEndsAHangingCallWithItsCause(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Text: "a b", Hold: make(chan struct{})}))
	ctx, cancel := context.WithCancelCause(t.Context())
	pieces := 0
	_, err := model(server).Generate(ctx, ask("x"), func(string) {
		if pieces++; pieces == 2 {
			go cancel(stopped)
		}
	})
	require.ErrorIs(t, err, stopped)
}

func TestGenerate_ToolsWithoutSchemaObjectAreRefusedHere(t *testing.T) {
	t.Parallel()
	req := ask("x")
	req.Tools = []llm.ToolSpec{{Name: "f", Parameters: json.RawMessage(`[]`)}}
	_, err := openai.New(openai.Config{}).Generate(t.Context(), req, nil)
	var failed *llm.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, llm.KindBadRequest, failed.Kind)
}

// countingTransport tells that a model uses the transport that it was given.
type countingTransport struct{ calls int }

func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls++
	return http.DefaultTransport.RoundTrip(r)
}

func TestNew_UsesTheGivenTransport(t *testing.T) {
	t.Parallel()
	server := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Text: "ok then"}))
	transport := &countingTransport{}
	m := openai.New(openai.Config{BaseURL: server.URL, Transport: transport})
	_, err := m.Generate(t.Context(), ask("x"), nil)
	require.NoError(t, err)
	require.Equal(t, 1, transport.calls)
	require.Empty(t, server.Requests()[0].Header.Get("Authorization"), "no key, no header")
}
