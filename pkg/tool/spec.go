// Package tool is the contract between the ReAct loop and tools: what a tool is, how its arguments are checked, and
// how it is called. The remote side is toolexec, reached through [toolrpc].
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Effect says what may happen when a call is repeated.
type Effect string

// Read changes nothing, idempotent may be repeated under the same IdemKey, unsafe must not be repeated when its
// outcome is unknown.
const (
	Read       Effect = "read"
	Idempotent Effect = "idempotent"
	Unsafe     Effect = "unsafe"
)

// Spec describes a tool.
type Spec struct {
	Name        string
	Description string
	// Parameters is a JSON Schema (2020-12) of type object.
	Parameters json.RawMessage
	Effect     Effect
	// PathArguments name the arguments that are paths inside the workspace.
	PathArguments []string
}

// Request is one call, arguments checked.
type Request struct {
	RunID, CallID, IdemKey string
	// Session is the skey: it names the workspace.
	Session, Tenant, User string
	Name                  string
	Arguments             json.RawMessage
	Deadline              time.Time
}

// Outcome says how a call ended.
type Outcome string

// The outcomes. Error, Timeout and Denied are observations for the model like OK.
const (
	OK      Outcome = "ok"
	Error   Outcome = "error"
	Timeout Outcome = "timeout"
	Denied  Outcome = "denied"
)

// Result is the observation of a call.
type Result struct {
	Outcome Outcome `json:"outcome"`
	Content string  `json:"content"`
	// FullSize is the size of the whole output in bytes when Truncated.
	FullSize  int64 `json:"full_size,omitempty"`
	Truncated bool  `json:"truncated,omitempty"`
}

// ErrUnavailable: no tool server answered. Whether the call happened is unknown.
var ErrUnavailable = errors.New("tool: executor unavailable")

// Executor runs tools.
type Executor interface {
	// Tools lists what can be called now.
	Tools(ctx context.Context) ([]Spec, error)
	// Execute runs one call and reports progress from one goroutine. Errors are ErrUnavailable or the context's cause:
	// failures of the tool itself are a Result.
	Execute(ctx context.Context, req Request, progress func(string)) (Result, error)
}
