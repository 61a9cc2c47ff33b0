// Package llm is the port to stateless model APIs: a conversation goes in, one message comes out, streamed.
//
// Backends are [openai] (any OpenAI-compatible server) and [demo] (offline). [llmtest] holds the suite. Models keep no
// state between calls and are safe for concurrent use.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Role of a message.
type Role string

// The roles of a conversation. The system prompt is not part of the messages, see Request.System.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one entry of a conversation; its JSON form is what history stores.
type Message struct {
	Role Role   `json:"role"`
	Text string `json:"text,omitempty"`
	// Name is the speaker in a shared conversation, without brackets or line breaks; [Join] writes it before the text.
	Name string `json:"name,omitempty"`
	// ToolCalls are set on assistant messages; each is answered by a Tool message with its ID.
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	// ToolError marks a tool message that reports a failure.
	ToolError bool `json:"tool_error,omitempty"`
}

// ToolCall is a call that the model asks for. Arguments is what the model wrote: it may not be valid JSON.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolSpec describes a tool to the model.
type ToolSpec struct {
	Name        string
	Description string
	// Parameters is a JSON Schema of type object.
	Parameters json.RawMessage
}

// Request is one call of a model.
type Request struct {
	// Model is the provider's model name.
	Model    string
	System   string
	Messages []Message
	Tools    []ToolSpec
	// MaxTokens bounds the output; 0 leaves it to the provider.
	MaxTokens int
}

// FinishReason says why the model stopped.
type FinishReason string

// The finish reasons that the loop tells apart.
const (
	FinishStop      FinishReason = "stop"
	FinishToolCalls FinishReason = "tool_calls"
	FinishLength    FinishReason = "length"
	FinishFilter    FinishReason = "content_filter"
)

// Usage counts tokens; zero where the provider gives none. Its JSON form is the usage of a run in the store; readers
// ignore fields that they do not know.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// Add returns the sum.
func (u Usage) Add(o Usage) Usage {
	return Usage{InputTokens: u.InputTokens + o.InputTokens, OutputTokens: u.OutputTokens + o.OutputTokens}
}

// Response is the model's whole answer.
type Response struct {
	// ID and Model as the provider names them.
	ID, Model string
	Message   Message
	Finish    FinishReason
	Usage     Usage
}

// Model generates answers.
type Model interface {
	// Generate calls onText for each piece of text as it arrives, in order and from one goroutine, and returns the whole
	// answer. Errors are *Error or the context's cause.
	Generate(ctx context.Context, req Request, onText func(string)) (Response, error)
	// Provider is the well-known provider name for telemetry: "openai", "demo", ….
	Provider() string
}

// ErrorKind classifies failures of a provider.
type ErrorKind string

// The kinds decide what happens next: auth, billing and bad requests are final, the others may be retried.
const (
	KindAuth            ErrorKind = "auth"
	KindBilling         ErrorKind = "billing"
	KindRateLimit       ErrorKind = "rate_limit"
	KindOverloaded      ErrorKind = "overloaded"
	KindServer          ErrorKind = "server"
	KindTimeout         ErrorKind = "timeout"
	KindNetwork         ErrorKind = "network"
	KindContextOverflow ErrorKind = "context_overflow"
	KindModelNotFound   ErrorKind = "model_not_found"
	KindBadRequest      ErrorKind = "bad_request"
	KindPolicy          ErrorKind = "policy"
)

// Error is a failure of a provider. Its text never holds a credential.
type Error struct {
	Kind   ErrorKind
	Status int
	// RetryAfter is the provider's wish, 0 if it has none.
	RetryAfter time.Duration
	Message    string
	Err        error
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("model: %s (%d): %s", e.Kind, e.Status, e.Message)
	}
	return fmt.Sprintf("model: %s: %s", e.Kind, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed later.
func Retryable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case KindRateLimit, KindOverloaded, KindServer, KindTimeout, KindNetwork:
		return true
	default:
		return false
	}
}
