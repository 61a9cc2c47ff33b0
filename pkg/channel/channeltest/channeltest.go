// Package channeltest holds the suite that every [channel.Sender] passes against a fake of its platform.
package channeltest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// Answer is what the platform does to one send.
type Answer struct {
	Status int
	Header http.Header
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
	// Seen lists what reached the platform, accepted or not.
	Seen() []Seen
	// Close refuses connections from now on.
	Close() error
}

// Bundle is a sender and the platform that it sends to.
type Bundle struct {
	Sender   channel.Sender
	Platform Platform
	Target   event.Address
	// Credentials must never stand in an error.
	Credentials []string
}

// Run runs the suite; setup returns a fresh bundle.
func Run(t *testing.T, setup func(t *testing.T) Bundle) {
	t.Helper()
	t.Run("payload", func(t *testing.T) { t.Parallel(); payload(t, setup(t)) })
	t.Run("a repeated send keeps its key", func(t *testing.T) { t.Parallel(); repeat(t, setup(t)) })
	t.Run("split keeps the text within the limit", func(t *testing.T) { t.Parallel(); split(t, setup(t)) })
	t.Run("answers", func(t *testing.T) { t.Parallel(); answers(t, setup) })
	t.Run("retry-after is passed on", func(t *testing.T) { t.Parallel(); retryAfter(t, setup(t)) })
	t.Run("no connection is not sent", func(t *testing.T) { t.Parallel(); refused(t, setup(t)) })
	t.Run("no answer in time is unknown", func(t *testing.T) { t.Parallel(); timeout(t, setup(t)) })
}

const idemKey = "r:1:1"

func send(b Bundle, text string) channel.Send {
	return channel.Send{
		Target: b.Target, Part: channel.Part{Markdown: text}, IdemKey: idemKey,
		RunID: "0196e4c2-0000-7000-8000-000000000001", CreatedAt: time.Unix(1_767_225_600, 0),
	}
}

func payload(t *testing.T, b Bundle) {
	id, err := b.Sender.Send(t.Context(), send(b, "héllo *world*"))
	require.NoError(t, err)
	require.NotEmpty(t, id)
	require.Equal(t, []Seen{{ChatID: b.Target.ChatID, ThreadID: b.Target.ThreadID, Text: "héllo *world*", IdemKey: idemKey}}, b.Platform.Seen())
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
		{"404", Answer{Status: http.StatusNotFound}, channel.Permanent},
		{"408", Answer{Status: http.StatusRequestTimeout}, channel.NotSent},
		{"410", Answer{Status: http.StatusGone}, channel.Permanent},
		{"425", Answer{Status: http.StatusTooEarly}, channel.NotSent},
		{"429", Answer{Status: http.StatusTooManyRequests}, channel.NotSent},
		{"500", Answer{Status: http.StatusInternalServerError}, channel.NotSent},
		{"502", Answer{Status: http.StatusBadGateway}, channel.Unknown},
		{"503", Answer{Status: http.StatusServiceUnavailable}, channel.NotSent},
		{"504", Answer{Status: http.StatusGatewayTimeout}, channel.Unknown},
		{"redirect", Answer{Status: http.StatusTemporaryRedirect, Header: http.Header{"Location": {"http://127.0.0.1:1/x"}}}, channel.Permanent},
		{"reset", Answer{Reset: true}, channel.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Platform.Answer(c.answer)
			id, err := b.Sender.Send(t.Context(), send(b, "x"))
			require.Empty(t, id)
			e := sendError(t, b, err)
			require.Equal(t, c.class, e.Class)
			require.Equal(t, c.answer.Status, e.Status)
			require.Len(t, b.Platform.Seen(), 1, "a sender does not repeat by itself")
		})
	}
}

func retryAfter(t *testing.T, b Bundle) {
	b.Platform.Answer(Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"33"}}})
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
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := b.Sender.Send(ctx, send(b, "x"))
	require.Equal(t, channel.Unknown, channel.ClassOf(err))
	require.Len(t, b.Platform.Seen(), 1)
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
