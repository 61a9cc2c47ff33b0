package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// hookBody is what the test reads of an event.
type hookBody struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Tenant  string    `json:"tenant"`
	SKey    string    `json:"skey"`
	Gen     int64     `json:"gen"`
	N       int64     `json:"n"`
	At      time.Time `json:"at"`
	Content string    `json:"content"`
}

// observer is an HTTP hook that remembers.
type observer struct {
	mu   sync.Mutex
	seen []hookBody
}

func (o *observer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b hookBody
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.ContainsFunc(o.seen, func(other hookBody) bool { return other.ID == b.ID }) {
		o.seen = append(o.seen, b)
	}
}

func (o *observer) events() []hookBody {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

func (o *observer) has(typ string) bool {
	return slices.ContainsFunc(o.events(), func(b hookBody) bool { return b.Type == typ })
}

// TestHooks_ASlowAndAFailingOneDelayNothingAndOthersGetAllInOrder: a message with a tool call is answered and told in
// full while one hook has not answered its first request and another one fails every time.
func TestHooks_ASlowAndAFailingOneDelayNothingAndOthersGetAllInOrder(t *testing.T) {
	t.Parallel()
	all := &observer{}
	audit := httptest.NewServer(all)
	t.Cleanup(audit.Close)
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(release) })
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(failing.Close)

	s := start(t, options{extra: hooksOf(t, map[string]string{"audit": audit.URL, "hanging": hanging.URL, "failing": failing.URL})})
	s.send("1", "room", "what files are in the workspace?")
	s.awaitReplies(1, 60*time.Second)
	await.True(t, 60*time.Second, func() bool { return all.has("processing_completed") })

	events := all.events()
	var run []int64
	for _, e := range events {
		require.Equal(t, events[0].SKey, e.SKey)
		require.Equal(t, "default", e.Tenant, e.Type)
		require.Empty(t, e.Content)
		if e.Gen > 0 && e.N > 0 {
			run = append(run, e.N)
		}
	}
	require.True(t, slices.IsSorted(run), "what one process tells comes in its order: %v", run)
	slices.SortStableFunc(events, func(a, b hookBody) int { return a.At.Compare(b.At) })
	var order []string
	for _, e := range events {
		if !slices.Contains(order, e.Type) {
			order = append(order, e.Type)
		}
	}
	// state_changed tells that a state was left, so the first one comes before the model is asked.
	require.Equal(t, []string{
		"message_received", "processing_started", "run_started", "state_changed", "llm_started", "llm_finished", "tool_started",
		"tool_finished", "run_finished", "response_sent", "processing_completed",
	}, slices.DeleteFunc(order, func(typ string) bool { return typ == "tool_progress" || typ == "message_pending" }))
}

// hooksOf is the section of the configuration for HTTP hooks by name.
func hooksOf(t *testing.T, urls map[string]string) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret"), 0o600))
	var b strings.Builder
	b.WriteString("hooks:\n")
	for name, url := range urls {
		fmt.Fprintf(&b, "  %s: {url: %q, secret: %q, allow_private: true, timeout: 1h}\n", name, url, "file:"+secret)
	}
	return b.String()
}
