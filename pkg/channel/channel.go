// Package channel is the port to chat platforms. Each platform is one package below with both directions: parse and
// verify what comes in, render and send what goes out. Ingress and egress host them.
package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
)

// Part is one semantic piece of a reply, before any dialect; the JSON form of an outbox part.
type Part struct {
	Markdown string   `json:"markdown,omitempty"`
	Files    []File   `json:"files,omitempty"`
	Actions  []Action `json:"actions,omitempty"`
	// Notice marks a message of the runtime (refused, stopped, busy) rather than an answer.
	Notice bool `json:"notice,omitempty"`
	// EditOf is the platform id of an earlier message that this one replaces.
	EditOf string `json:"edit_of,omitempty"`
}

// File goes out with a part.
type File struct {
	Ref  string `json:"ref"`
	Name string `json:"name,omitempty"`
	MIME string `json:"mime,omitempty"`
}

// Action is a button; it comes back as an event of kind action.
type Action struct {
	ID     string `json:"id"`
	Label  string `json:"label"`
	CallID string `json:"call_id,omitempty"`
}

// Send is one message to a platform.
type Send struct {
	Target event.Address
	Part   Part
	// IdemKey is the same for every try of this part: the platform's idempotency key where it has one.
	IdemKey string
	// Number is the place of the message in its reply, from 1; 0 if that is not known.
	Number int
	// RunID, MsgUID and the times are for platforms that pass them on.
	RunID     string
	CreatedAt time.Time
}

// Capability says what a platform can do, for splitting and for repeated sends.
type Capability struct {
	// MaxUnits bounds one message, 0 = no limit; Unit is how it counts.
	MaxUnits int
	// IdempotentFor is how long the platform drops a second send of one IdemKey; 0: never.
	IdempotentFor time.Duration
	// Streams: frames are worth publishing for this platform.
	Streams bool
	// Read: clients read their replies from the store; nothing is sent.
	Read bool
	// SlowAfter lets deliveries that keep failing leave the session's order after this time; 0: never.
	SlowAfter time.Duration
}

// Sender delivers to one platform.
type Sender interface {
	Capability() Capability
	// Split cuts the parts of a reply into messages that the platform takes. The result is stored before the first send.
	Split(parts []Part) []Part
	// Send sends one message and returns the platform's id of it. Errors are *SendError or the context's.
	Send(ctx context.Context, s Send) (platformID string, err error)
}

// Preview is an answer that is still being written.
type Preview struct {
	Target event.Address
	// RunID is the run that writes it.
	RunID string
	// Text is all of the answer so far, as Markdown that may break off anywhere. It is longer than one message may be:
	// show its beginning.
	Text string
	// ID is the message that shows it, as the last call returned it; "" for the first.
	ID string
}

// Previewer is a Sender that can show an answer while it is being written. Previews are hints: nothing depends on them.
type Previewer interface {
	// PreviewEvery is the least time between two previews in a chat; 0: none are shown there.
	PreviewEvery(target event.Address) time.Duration
	// Preview shows p and returns the id of the message that does; "" where the platform needs none and takes it away by
	// itself. A final Send with Part.EditOf = id replaces it. Errors as of Send.
	Preview(ctx context.Context, p Preview) (id string, err error)
	// DeletePreview removes a message that shows a preview; one that is gone is no error.
	DeletePreview(ctx context.Context, target event.Address, id string) error
}

// Typer is a Sender that can show that somebody is at work.
type Typer interface {
	// TypingEvery is the time after which a sign fades and has to be repeated.
	TypingEvery() time.Duration
	Typing(ctx context.Context, target event.Address) error
}

// Limiter is a Sender whose platform limits the rate of sends.
type Limiter interface {
	// Limits returns the buckets from which one send to target takes a token each, the widest first. Previews and typing
	// take from the same ones.
	Limits(target event.Address) []ratelimit.Bucket
}

// Class says what may have happened and what to do next.
type Class string

// NotSent: refused or never reached, try again. Unknown: written and no answer, the message may be there. Permanent:
// no repetition helps. Credential: the account is not accepted. Moved: the chat has a new address.
const (
	NotSent    Class = "not_sent"
	Unknown    Class = "unknown"
	Permanent  Class = "permanent"
	Credential Class = "credential"
	Moved      Class = "moved"
)

// SendError is a failed send. Its text never holds a credential or a URL with one.
type SendError struct {
	Class Class
	// Status is the HTTP status, 0 if there was none.
	Status     int
	RetryAfter time.Duration
	// MovedTo is the new address for Moved.
	MovedTo string
	// Freezes is the key of the bucket that RetryAfter closes, "" for those of the target.
	Freezes string
	// ThreadGone: the thread of the target no longer exists, and nothing was sent. Without it the message would go to
	// the chat.
	ThreadGone bool
	Err        error
}

func (e *SendError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("send: %s (%d): %v", e.Class, e.Status, e.Err)
	}
	return fmt.Sprintf("send: %s: %v", e.Class, e.Err)
}

func (e *SendError) Unwrap() error { return e.Err }

// ClassOf returns the class of err; an error that is no SendError may have reached the platform.
func ClassOf(err error) Class {
	var e *SendError
	if errors.As(err, &e) {
		return e.Class
	}
	return Unknown
}

// EncodeParts is the outbox form of parts.
func EncodeParts(parts ...Part) json.RawMessage {
	raw, err := json.Marshal(parts)
	if err != nil { // strings and bools only: cannot fail
		panic(err)
	}
	return raw
}
