package egresstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
)

// Name of the platform.
const Name = "room"

// Kind of a request.
type Kind string

// The requests of the platform.
const (
	Send    Kind = "send"
	Edit    Kind = "edit"
	Preview Kind = "preview"
	Delete  Kind = "delete"
	Typing  Kind = "typing"
)

// Request is what the platform was asked for.
type Request struct {
	Kind   Kind
	Target event.Address
	Text   string
	// ID is the message that is edited or deleted.
	ID string
}

// Platform is a chat platform that follows a script and remembers what it shows. It is a channel.Sender, Previewer, Typer
// and Limiter, and safe for concurrent use.
type Platform struct {
	// Every is the least time between two previews, TypeEvery between two signs of typing; 0: there are none.
	Every, TypeEvery time.Duration
	// Rates are the limits of a target.
	Rates func(target event.Address) []ratelimit.Bucket
	// Before, if not nil, is called at the begin of each request.
	Before func(r Request)

	mu       sync.Mutex
	script   map[Kind][]error
	requests []Request
	shown    map[string][]message
	last     int
}

type message struct{ id, text string }

var _ interface {
	channel.Sender
	channel.Previewer
	channel.Typer
	channel.Limiter
} = (*Platform)(nil)

// NewPlatform returns a platform without limits that previews often.
func NewPlatform() *Platform {
	return &Platform{
		Every: 10 * time.Millisecond, script: map[Kind][]error{}, shown: map[string][]message{},
		Rates: func(event.Address) []ratelimit.Bucket { return nil },
	}
}

// Answer makes the next requests of a kind fail with these errors, nil for one that succeeds.
func (p *Platform) Answer(k Kind, errs ...error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script[k] = append(p.script[k], errs...)
}

// Requests returns those for a chat; of these kinds, or all.
func (p *Platform) Requests(chat string, kinds ...Kind) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Request
	for _, r := range p.requests {
		if r.Target.ChatID == chat && (len(kinds) == 0 || slices.Contains(kinds, r.Kind)) {
			list = append(list, r)
		}
	}
	return list
}

// Shown are the messages that a chat shows, in order.
func (p *Platform) Shown(chat string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []string{}
	for _, m := range p.shown[chat] {
		list = append(list, m.text)
	}
	return list
}

// Put shows a message that somebody else has sent, and returns its id.
func (p *Platform) Put(chat, text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.post(chat, text)
}

// Remove takes a message away, as a user may.
func (p *Platform) Remove(chat, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(chat, id)
}

func (p *Platform) remove(chat, id string) {
	p.shown[chat] = slices.DeleteFunc(p.shown[chat], func(m message) bool { return m.id == id })
}

func (p *Platform) post(chat, text string) string {
	p.last++
	id := fmt.Sprintf("m%d", p.last)
	p.shown[chat] = append(p.shown[chat], message{id, text})
	return id
}

// put edits the message id, or shows a new one where there is none.
func (p *Platform) put(chat, id, text string) string {
	for i, m := range p.shown[chat] {
		if m.id == id {
			p.shown[chat][i].text = text
			return id
		}
	}
	return p.post(chat, text)
}

// take notes a request and returns what the script says.
func (p *Platform) take(r Request) error {
	if p.Before != nil {
		p.Before(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	script := p.script[r.Kind]
	if len(script) == 0 {
		return nil
	}
	p.script[r.Kind] = script[1:]
	return script[0]
}

// Capability implements channel.Sender.
func (p *Platform) Capability() channel.Capability { return channel.Capability{Streams: true} }

// Split implements channel.Sender: a part is a message.
func (p *Platform) Split(parts []channel.Part) []channel.Part { return parts }

// Send implements channel.Sender. An edit of a message that is gone sends a new one.
func (p *Platform) Send(_ context.Context, s channel.Send) (string, error) {
	kind := Send
	if s.Part.EditOf != "" {
		kind = Edit
	}
	if err := p.take(Request{Kind: kind, Target: s.Target, Text: s.Part.Markdown, ID: s.Part.EditOf}); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.put(s.Target.ChatID, s.Part.EditOf, s.Part.Markdown), nil
}

// PreviewEvery implements channel.Previewer.
func (p *Platform) PreviewEvery(event.Address) time.Duration { return p.Every }

// Preview implements channel.Previewer.
func (p *Platform) Preview(_ context.Context, v channel.Preview) (string, error) {
	if err := p.take(Request{Kind: Preview, Target: v.Target, Text: v.Text, ID: v.ID}); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.put(v.Target.ChatID, v.ID, v.Text), nil
}

// DeletePreview implements channel.Previewer.
func (p *Platform) DeletePreview(_ context.Context, target event.Address, id string) error {
	if err := p.take(Request{Kind: Delete, Target: target, ID: id}); err != nil {
		return err
	}
	p.Remove(target.ChatID, id)
	return nil
}

// TypingEvery implements channel.Typer.
func (p *Platform) TypingEvery() time.Duration { return p.TypeEvery }

// Typing implements channel.Typer.
func (p *Platform) Typing(_ context.Context, target event.Address) error {
	return p.take(Request{Kind: Typing, Target: target})
}

// Limits implements channel.Limiter.
func (p *Platform) Limits(target event.Address) []ratelimit.Bucket { return p.Rates(target) }

// ErrScripted is what failed requests wrap.
var ErrScripted = errors.New("scripted")

// Failure is a failed request of a class.
func Failure(c channel.Class) error { return &channel.SendError{Class: c, Err: ErrScripted} }

// TooMany is a 429 that closes the bucket of a chat.
func TooMany(retryAfter time.Duration, bucket string) error {
	return &channel.SendError{Class: channel.NotSent, Status: 429, RetryAfter: retryAfter, Freezes: bucket, Err: ErrScripted}
}
