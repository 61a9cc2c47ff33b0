// Package openai calls any server that speaks the OpenAI Chat Completions protocol.
//
// Answers are always streamed and passed on piece by piece. Nothing is repeated here: the SDK's own retries are off,
// failures are classified as *llm.Error and the caller decides. No error holds a credential or a URL.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

// DefaultBaseURL is the provider's own server.
const DefaultBaseURL = "https://api.openai.com/v1"

// DefaultTimeout suits models that think before they answer.
const DefaultTimeout = 2 * time.Minute

// Config is what an operator sets for a provider.
type Config struct {
	// BaseURL ends before "/chat/completions"; empty: DefaultBaseURL.
	BaseURL string
	// APIKey may be empty for servers that need none.
	APIKey string
	// Model is used by requests that name none.
	Model string
	// Timeout bounds the wait for the first and for each next piece of an answer; 0: DefaultTimeout.
	Timeout time.Duration
	// Transport carries the requests; nil: a transport of its own.
	Transport http.RoundTripper
}

// Model is an llm.Model, safe for concurrent use.
type Model struct {
	cfg    Config
	client sdk.ChatCompletionService
}

var _ llm.Model = (*Model)(nil)

// New returns a model. It reads no environment.
func New(cfg Config) *Model {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport()
	}
	options := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(&http.Client{Transport: cfg.Transport}),
		option.WithMaxRetries(0),
		option.WithMiddleware(refusals(cfg.APIKey)),
	}
	if cfg.APIKey != "" {
		options = append(options, option.WithAPIKey(cfg.APIKey))
	}
	return &Model{cfg: cfg, client: sdk.NewChatCompletionService(options...)}
}

// newTransport keeps enough idle connections for the many runs of one worker, all to one host.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns = 256
	t.MaxIdleConnsPerHost = 256
	return t
}

// Provider implements llm.Model.
func (m *Model) Provider() string { return "openai" }

// errSilent is the cause of a call that was given up because nothing came.
var errSilent = errors.New("openai: no answer in time")

// Generate implements llm.Model.
func (m *Model) Generate(ctx context.Context, req llm.Request, onText func(string)) (llm.Response, error) {
	params, err := m.params(req)
	if err != nil {
		return llm.Response{}, err
	}
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(m.cfg.Timeout, func() { cancel(errSilent) })
	defer silence.Stop()

	answer := newAnswer(onText)
	stream := m.client.NewStreaming(callCtx, params)
	defer func() { _ = stream.Close() }() // nothing is left to read
	for stream.Next() {
		silence.Reset(m.cfg.Timeout)
		answer.add(stream.Current())
		if ctx.Err() != nil { // no text after a stop, though it may have arrived already
			return llm.Response{}, context.Cause(ctx)
		}
	}
	switch err := stream.Err(); {
	case ctx.Err() != nil:
		return llm.Response{}, context.Cause(ctx)
	case callCtx.Err() != nil:
		return llm.Response{}, &llm.Error{Kind: llm.KindTimeout, Message: fmt.Sprintf("nothing came for %s", m.cfg.Timeout)}
	case err != nil:
		return llm.Response{}, classify(err)
	}
	return answer.response()
}

func (m *Model) params(req llm.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         req.Model,
		Messages:      messagesOf(req),
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	if p.Model == "" {
		p.Model = m.cfg.Model
	}
	if req.MaxTokens > 0 {
		m.limit(&p, int64(req.MaxTokens))
	}
	for _, t := range req.Tools {
		function, err := functionOf(t)
		if err != nil {
			return p, err
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(function))
	}
	return p, nil
}

// limit sets the one of two fields that the server knows: the provider's own models refuse max_tokens, many compatible
// servers ignore its successor.
func (m *Model) limit(p *sdk.ChatCompletionNewParams, tokens int64) {
	if strings.HasPrefix(m.cfg.BaseURL, DefaultBaseURL) {
		p.MaxCompletionTokens = param.NewOpt(tokens)
		return
	}
	p.MaxTokens = param.NewOpt(tokens)
}

func functionOf(t llm.ToolSpec) (shared.FunctionDefinitionParam, error) {
	function := shared.FunctionDefinitionParam{Name: t.Name}
	if t.Description != "" {
		function.Description = param.NewOpt(t.Description)
	}
	// Only the first level is parsed; what is below goes out as it is.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(t.Parameters, &fields); err != nil {
		return function, &llm.Error{Kind: llm.KindBadRequest, Message: "parameters of tool " + t.Name + " are no JSON object"}
	}
	function.Parameters = make(shared.FunctionParameters, len(fields))
	for name, value := range fields {
		function.Parameters[name] = value
	}
	return function, nil
}

func messagesOf(req llm.Request) []sdk.ChatCompletionMessageParamUnion {
	var out []sdk.ChatCompletionMessageParamUnion
	if req.System != "" {
		out = append(out, sdk.SystemMessage(req.System))
	}
	for _, m := range llm.Join(req.Messages) {
		switch m.Role {
		case llm.User:
			out = append(out, sdk.UserMessage(m.Text))
		case llm.Assistant:
			out = append(out, assistantMessage(m))
		case llm.Tool:
			out = append(out, sdk.ToolMessage(resultText(m), m.ToolCallID))
		}
	}
	return out
}

// resultText marks failures in the text: the protocol has no field for them.
func resultText(m llm.Message) string {
	if m.ToolError {
		return "error: " + m.Text
	}
	return m.Text
}

func assistantMessage(m llm.Message) sdk.ChatCompletionMessageParamUnion {
	var out sdk.ChatCompletionAssistantMessageParam
	if m.Text != "" {
		out.Content.OfString = param.NewOpt(m.Text)
	}
	for _, c := range m.ToolCalls {
		call := sdk.ChatCompletionMessageFunctionToolCallParam{ID: c.ID}
		call.Function.Name, call.Function.Arguments = c.Name, c.Arguments
		out.ToolCalls = append(out.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &call})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &out}
}
