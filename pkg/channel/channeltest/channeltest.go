// Package channeltest holds the suite that every [channel.Sender] passes against a fake of its platform. What a platform
// cannot do, or says in its own way, is declared in [Features].
package channeltest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// Answer is what the platform does to one send.
type Answer struct {
	Status int
	// RetryAfter is what the answer asks for, in the way of the platform.
	RetryAfter time.Duration
	// Location is where a redirect leads.
	Location string
	// Hang never answers, Reset cuts the connection after the request is read.
	Hang, Reset bool
}

// Seen is a send that reached the platform.
type Seen struct {
	ChatID, ThreadID, Text, IdemKey string
}

// Platform is a fake under the control of the suite.
type Platform interface {
	// Answer scripts the next answers; after them everything is accepted.
	Answer(a ...Answer)
	// Seen lists the sends that reached the platform, accepted or not.
	Seen() []Seen
	// Shown is what a person sees in the chat of the target, in order.
	Shown() []string
	// Close refuses connections from now on.
	Close() error
}

// Sample is the Markdown that the suite sends, see [Features.Sample].
const Sample = "héllo *world*"

// Features says what a platform can do, and how.
type Features struct {
	// NoIdemKey: sends carry no idempotency key.
	NoIdemKey bool
	// Sample is the form in which [Sample] reaches the platform.
	Sample string
	// Classes are those of statuses that mean something else than elsewhere.
	Classes map[int]channel.Class
}

// Bundle is a sender and the platform that it sends to.
type Bundle struct {
	Sender   channel.Sender
	Platform Platform
	Target   event.Address
	// Credentials must never stand in an error.
	Credentials []string
	// features are set by Run.
	features Features
}

// idem is the key that a send is to carry.
func (b Bundle) idem() string {
	if b.features.NoIdemKey {
		return ""
	}
	return idemKey
}

// Run runs the suite; setup returns a fresh bundle. What a sender can do beyond [channel.Sender] is tested if it can.
func Run(t *testing.T, f Features, fresh func(t *testing.T) Bundle) {
	t.Helper()
	setup := func(t *testing.T) Bundle {
		t.Helper()
		b := fresh(t)
		b.features = f
		return b
	}
	t.Run("payload", func(t *testing.T) { t.Parallel(); payload(t, setup(t)) })
	t.Run("a repeated send is the same", func(t *testing.T) { t.Parallel(); repeat(t, setup(t)) })
	t.Run("split keeps the text within the limit", func(t *testing.T) { t.Parallel(); split(t, setup(t)) })
	t.Run("answers", func(t *testing.T) { t.Parallel(); answers(t, setup) })
	t.Run("retry-after is passed on", func(t *testing.T) { t.Parallel(); retryAfter(t, setup(t)) })
	t.Run("no connection is not sent", func(t *testing.T) { t.Parallel(); refused(t, setup(t)) })
	t.Run("no answer in time is unknown", func(t *testing.T) { t.Parallel(); timeout(t, setup(t)) })
	t.Run("previews", func(t *testing.T) { t.Parallel(); previews(t, setup) })
	t.Run("typing", func(t *testing.T) { t.Parallel(); typing(t, setup(t)) })
	t.Run("limits", func(t *testing.T) { t.Parallel(); limits(t, setup(t)) })
}

const (
	idemKey = "r:1:1"
	runID   = "0196e4c2-0000-7000-8000-000000000001"
)

func send(b Bundle, text string) channel.Send {
	return channel.Send{
		Target: b.Target, Part: channel.Part{Markdown: text}, IdemKey: idemKey, Number: 1,
		RunID: runID, CreatedAt: time.Unix(1_767_225_600, 0),
	}
}

func payload(t *testing.T, b Bundle) {
	id, err := b.Sender.Send(t.Context(), send(b, Sample))
	require.NoError(t, err)
	require.NotEmpty(t, id)
	want := Seen{ChatID: b.Target.ChatID, ThreadID: b.Target.ThreadID, Text: b.features.Sample, IdemKey: b.idem()}
	require.Equal(t, []Seen{want}, b.Platform.Seen())
}

func repeat(t *testing.T, b Bundle) {
	b.Platform.Answer(Answer{Status: http.StatusServiceUnavailable})
	m := send(b, "again")
	_, err := b.Sender.Send(t.Context(), m)
	require.Error(t, err)
	_, err = b.Sender.Send(t.Context(), m)
	require.NoError(t, err)
	seen := b.Platform.Seen()
	require.Len(t, seen, 2)
	require.Equal(t, seen[0], seen[1])
	require.Equal(t, b.idem(), seen[0].IdemKey)
}

func split(t *testing.T, b Bundle) {
	parts := b.Sender.Split([]channel.Part{{Markdown: "one"}, {Markdown: "two", Notice: true}})
	var text string
	for _, p := range parts {
		require.NotEmpty(t, p.Markdown)
		text += p.Markdown
	}
	require.Contains(t, text, "one")
	require.Contains(t, text, "two")
	require.Equal(t, parts, b.Sender.Split(parts), "a second cut changes nothing")
}

func answers(t *testing.T, setup func(t *testing.T) Bundle) {
	for _, c := range []struct {
		name   string
		answer Answer
		class  channel.Class
	}{
		{"400", Answer{Status: http.StatusBadRequest}, channel.Permanent},
		{"401", Answer{Status: http.StatusUnauthorized}, channel.Permanent},
		{"403", Answer{Status: http.StatusForbidden}, channel.Permanent},
		{"404", Answer{Status: http.StatusNotFound}, channel.Permanent},
		{"408", Answer{Status: http.StatusRequestTimeout}, channel.NotSent},
		{"410", Answer{Status: http.StatusGone}, channel.Permanent},
		{"425", Answer{Status: http.StatusTooEarly}, channel.NotSent},
		{"429", Answer{Status: http.StatusTooManyRequests}, channel.NotSent},
		{"500", Answer{Status: http.StatusInternalServerError}, channel.NotSent},
		{"502", Answer{Status: http.StatusBadGateway}, channel.Unknown},
		{"503", Answer{Status: http.StatusServiceUnavailable}, channel.NotSent},
		{"504", Answer{Status: http.StatusGatewayTimeout}, channel.Unknown},
		{"redirect", Answer{Status: http.StatusTemporaryRedirect, Location: "http://127.0.0.1:1/x"}, channel.Permanent},
		{"reset", Answer{Reset: true}, channel.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			class := c.class
			if other, ok := b.features.Classes[c.answer.Status]; ok {
				class = other
			}
			b.Platform.Answer(c.answer)
			id, err := b.Sender.Send(t.Context(), send(b, "x"))
			require.Empty(t, id)
			e := sendError(t, b, err)
			require.Equal(t, class, e.Class)
			require.Equal(t, c.answer.Status, e.Status)
			require.Len(t, b.Platform.Seen(), 1, "a sender does not repeat by itself")
		})
	}
}

func retryAfter(t *testing.T, b Bundle) {
	b.Platform.Answer(Answer{Status: http.StatusTooManyRequests, RetryAfter: 33 * time.Second})
	_, err := b.Sender.Send(t.Context(), send(b, "x"))
	require.Equal(t, 33*time.Second, sendError(t, b, err).RetryAfter)
}

func refused(t *testing.T, b Bundle) {
	require.NoError(t, b.Platform.Close())
	_, err := b.Sender.Send(t.Context(), send(b, "x"))
	require.Equal(t, channel.NotSent, sendError(t, b, err).Class)
}

func timeout(t *testing.T, b Bundle) {
	b.Platform.Answer(Answer{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := b.Sender.Send(ctx, send(b, "x"))
		done <- err
	}()
	require.Eventually(t, func() bool { return len(b.Platform.Seen()) == 1 }, time.Minute, time.Millisecond)
	cancel() // the time is up
	require.Equal(t, channel.Unknown, channel.ClassOf(<-done))
	require.Len(t, b.Platform.Seen(), 1)
}

func previews(t *testing.T, setup func(t *testing.T) Bundle) {
	if _, ok := setup(t).Sender.(channel.Previewer); !ok {
		return
	}
	t.Run("end as one message", func(t *testing.T) { t.Parallel(); previewThenAnswer(t, setup(t)) })
	t.Run("can be taken away", func(t *testing.T) { t.Parallel(); previewThenNothing(t, setup(t)) })
}

// preview shows an answer that grows beyond what one message holds and breaks off within markup.
func preview(t *testing.T, b Bundle) (s channel.Previewer, id string) {
	t.Helper()
	s, _ = b.Sender.(channel.Previewer)
	require.Positive(t, s.PreviewEvery(b.Target))
	p := channel.Preview{Target: b.Target, RunID: runID}
	for _, text := range []string{"", "an **ans", "an **answer** with `co", "an **answer** with `code`\n```go\n" + strings.Repeat("x := 1\n", 10_000)} {
		p.Text = text
		var err error
		p.ID, err = s.Preview(t.Context(), p)
		require.NoError(t, err)
	}
	return s, p.ID
}

func previewThenAnswer(t *testing.T, b Bundle) {
	_, id := preview(t, b)
	m := send(b, "the answer")
	m.Part.EditOf = id
	_, err := b.Sender.Send(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, []string{"the answer"}, b.Platform.Shown())
}

func previewThenNothing(t *testing.T, b Bundle) {
	s, id := preview(t, b)
	for range 2 { // one that is gone is no error
		require.NoError(t, s.DeletePreview(t.Context(), b.Target, id))
	}
	require.Empty(t, b.Platform.Shown())
}

func typing(t *testing.T, b Bundle) {
	s, ok := b.Sender.(channel.Typer)
	if !ok {
		return
	}
	require.Positive(t, s.TypingEvery())
	require.NoError(t, s.Typing(t.Context(), b.Target))
	require.Empty(t, b.Platform.Shown())
	require.NoError(t, b.Platform.Close())
	// An open connection that is cut may have carried the sign.
	require.Contains(t, []channel.Class{channel.NotSent, channel.Unknown}, sendError(t, b, s.Typing(t.Context(), b.Target)).Class)
}

func limits(t *testing.T, b Bundle) {
	s, ok := b.Sender.(channel.Limiter)
	if !ok {
		return
	}
	other := b.Target
	other.ChatID += "9"
	mine, theirs := s.Limits(b.Target), s.Limits(other)
	require.NotEmpty(t, mine)
	require.NotEqual(t, mine[len(mine)-1].Key, theirs[len(theirs)-1].Key, "the narrowest is that of the chat")
	for _, bucket := range mine {
		require.Positive(t, bucket.Rate, bucket.Key)
		require.Positive(t, bucket.Burst, bucket.Key)
	}
}

func sendError(t *testing.T, b Bundle, err error) *channel.SendError {
	t.Helper()
	e, ok := errors.AsType[*channel.SendError](err)
	require.True(t, ok, "%v is no *channel.SendError", err)
	for _, secret := range b.Credentials {
		require.NotContains(t, err.Error(), secret)
	}
	return e
}
