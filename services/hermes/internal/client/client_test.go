package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

func serve(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return client.New(server.URL+"/", "k1")
}

func TestSend_RepeatsUnderOneKeyUntilTheServerTakesIt(t *testing.T) {
	t.Parallel()
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		require.Equal(t, "/v1/sessions/a%2Fb/messages", r.URL.EscapedPath())
		require.Equal(t, "Bearer k1", r.Header.Get("Authorization"))
		if len(keys) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var body map[string]string
		require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		require.Equal(t, map[string]string{"text": "hi"}, body)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"message_id":"msg_1","events_url":"/v1/runs/msg_1/events"}`)
	})
	accepted, err := c.Send(t.Context(), "a/b", "hi")
	require.NoError(t, err)
	require.Equal(t, client.Accepted{MessageID: "msg_1", EventsURL: "/v1/runs/msg_1/events"}, accepted)
	require.Len(t, keys, 3)
	require.Equal(t, keys[0], keys[1])
	require.Equal(t, keys[0], keys[2])
}

func TestSend_SaysWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	calls := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"has no content","param":"text","type":"invalid_request_error"}}`)
	})
	_, err := c.Send(t.Context(), "s", "")
	require.EqualError(t, err, "text: has no content (400)")
	require.Equal(t, 1, calls, "a refusal is not repeated")
}

func TestSend_WithoutAServerIsUnreachable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := client.New(server.URL, "").Send(t.Context(), "s", "hi")
	require.ErrorIs(t, err, client.ErrUnreachable)
}

func TestFollow_GoesOnBehindTheLastEventAfterACut(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if connections.Add(1) == 1 {
			fmt.Fprint(w, ": ping\n\nid: 3:1\nevent: run_started\ndata: {\"run_id\":\"r1\"}\n\nid: 3:2\nevent: text\ndata: {\"text\":\"Hel\"}\n\nevent: text\ndata: {\"te")
			return // in the middle of an event
		}
		require.Equal(t, "3:2", r.Header.Get("Last-Event-ID"))
		fmt.Fprint(w, "id: 3:3\nevent: text\ndata: {\"text\":\"lo\"}\n\nid: 3:4\r\nevent: done\r\ndata: {\"run_id\":\"r1\",\"text\":\"Hello\"}\r\n\r\n")
	})
	var kinds []client.Kind
	text := ""
	err := c.Follow(t.Context(), "/v1/runs/r1/events", func(e client.Event) {
		kinds = append(kinds, e.Kind)
		if e.Kind == client.Text {
			text += e.Text
		}
	})
	require.NoError(t, err)
	require.Equal(t, []client.Kind{client.RunStarted, client.Text, client.Text, client.Done}, kinds)
	require.Equal(t, "Hello", text)
}

func TestFollow_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(http.ErrAbortHandler)
	require.ErrorIs(t, c.Follow(ctx, "/x", func(client.Event) {}), http.ErrAbortHandler)
}
