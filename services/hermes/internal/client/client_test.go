package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

func serve(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return client.New(server.URL+"/", "k1")
}

const done = "id: 3:4\r\nevent: done\r\ndata: {\"run_id\":\"r1\",\"text\":\"Hello\"}\r\n\r\n"

const accepted = "event: accepted\ndata: {\"message_id\":\"m\",\"events_url\":\"/v1/runs/m/events\"}\n\n"

func ignore(client.Event) {}

func TestAsk_RepeatsUnderOneKeyUntilTheServerTakesIt(t *testing.T) {
	t.Parallel()
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		assert.Equal(t, "/v1/sessions/a%2Fb/messages", r.URL.EscapedPath())
		assert.Equal(t, "Bearer k1", r.Header.Get("Authorization"))
		if len(keys) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var body map[string]string
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		assert.Equal(t, map[string]string{"text": "hi"}, body)
		fmt.Fprint(w, accepted+done)
	})
	var last client.Event
	require.NoError(t, c.Ask(t.Context(), "a/b", "hi", func(e client.Event) { last = e }))
	require.Equal(t, client.Event{Kind: client.Done, RunID: "r1", Text: "Hello"}, last)
	require.Len(t, keys, 3)
	require.Equal(t, keys[0], keys[1])
	require.Equal(t, keys[0], keys[2])
}

func TestAsk_SaysWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	calls := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"has no content","param":"text","type":"invalid_request_error"}}`)
	})
	require.EqualError(t, c.Ask(t.Context(), "s", "", ignore), "text: has no content (400)")
	require.Equal(t, 1, calls, "a refusal is not repeated")
}

func TestAsk_WithoutAServerIsUnreachable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	require.ErrorIs(t, client.New(server.URL, "").Ask(t.Context(), "s", "hi", ignore), client.ErrUnreachable)
}

func TestAsk_GoesOnBehindTheLastEventAfterACut(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch connections.Add(1) {
		case 1: // cut in the middle of an event
			fmt.Fprint(w, accepted+": ping\n\nid: 3:1\nevent: run_started\ndata: {\"run_id\":\"r1\"}\n\n"+
				"id: 3:2\nevent: text\ndata: {\"text\":\"Hel\"}\n\nevent: text\ndata: {\"te")
		case 2: // this replica does not know the message yet
			w.WriteHeader(http.StatusNotFound)
		default:
			assert.Equal(t, http.MethodGet, r.Method)
			assert.Equal(t, "/v1/runs/m/events", r.URL.Path)
			assert.Equal(t, "3:2", r.Header.Get("Last-Event-ID"))
			fmt.Fprint(w, "id: 3:3\nevent: text\ndata: {\"text\":\"lo\"}\n\n"+done)
		}
	})
	var kinds []client.Kind
	text := ""
	require.NoError(t, c.Ask(t.Context(), "s", "hi", func(e client.Event) {
		kinds = append(kinds, e.Kind)
		if e.Kind == client.Text {
			text += e.Text
		}
	}))
	require.Equal(t, []client.Kind{client.RunStarted, client.Text, client.Text, client.Done}, kinds)
	require.Equal(t, "Hello", text)
}

func TestAsk_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(http.ErrAbortHandler)
	require.ErrorIs(t, c.Ask(ctx, "s", "hi", ignore), http.ErrAbortHandler)
}
