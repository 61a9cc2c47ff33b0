package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
)

// sse is one event of a stream.
type sse struct {
	id, kind string
	data     struct {
		Text  string `json:"text"`
		RunID string `json:"run_id"`
	}
}

// follow reads events until the wanted one has come.
func follow(t *testing.T, url, lastID string, until func(sse) bool) (events []sse) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := (&http.Client{}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	var e sse
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			require.NoError(t, json.Unmarshal([]byte(value), &e.data), value)
		case "":
			if e.kind == "" {
				continue
			}
			events = append(events, e)
			if until(e) {
				return events
			}
			e = sse{}
		}
	}
	require.NoError(t, lines.Err())
	require.Fail(t, "the stream ended", "%v", events)
	return nil
}

// text is what a client shows after the events: a reset takes back what came before.
func text(events []sse) string {
	var b strings.Builder
	for _, e := range events {
		switch e.kind {
		case "reset":
			b.Reset()
		case "text":
			b.WriteString(e.data.Text)
		}
	}
	return b.String()
}

func final(e sse) bool { return e.kind == "done" || e.kind == "failed" || e.kind == "cancelled" }

// ownerOf returns the name of the process that works on the only running session.
func (s *stack) ownerOf() string {
	s.t.Helper()
	owners := s.texts(`select owner from sessions where state = 'running'`)
	require.Len(s.t, owners, 1)
	id, _, _ := strings.Cut(owners[0], "/")
	return id
}

func TestSSE_ResumesOverAWorkerChange(t *testing.T) {
	t.Parallel()
	gate, second := make(chan struct{}), make(chan struct{})
	model := fakemodel.Start(t, func(n int, _ fakemodel.Request) fakemodel.Reply {
		if n == 0 { // the worker goes away in the middle of this answer
			return fakemodel.Reply{Text: "a first beginning", Hold: gate}
		}
		return fakemodel.Reply{Text: "the whole answer", Hold: second} // not before the client is back
	})
	t.Cleanup(func() { close(gate) })
	s := start(t, options{workers: 2, model: model.URL})
	header := http.Header{"Authorization": {"Bearer " + apiKey}, "Content-Type": {"application/json"}}
	code, body, err := call(http.MethodPost, "http://"+s.api+"/v1/sessions/c/messages", `{"text": "question"}`, header)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, code, body)
	var accepted struct {
		EventsURL string `json:"events_url"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &accepted))
	url := "http://" + s.api + accepted.EventsURL

	before := follow(t, url, "", func(e sse) bool { return e.kind == "text" && strings.HasSuffix(e.data.Text, "beginning") })
	require.Equal(t, "a first beginning", text(before))
	last := before[len(before)-1].id
	require.NotEmpty(t, last)

	leaving := s.ownerOf()
	for _, p := range s.processes {
		if p.id == leaving {
			require.NoError(t, p.terminate(), "SIGTERM hands the run over")
		}
	}
	after := follow(t, url, last, func(e sse) bool { return e.kind == "text" && strings.HasSuffix(e.data.Text, "answer") })
	close(second)
	after = append(after, follow(t, url, after[len(after)-1].id, final)...)
	require.Equal(t, "done", after[len(after)-1].kind)
	require.Equal(t, "the whole answer", after[len(after)-1].data.Text)
	kinds := make([]string, len(after))
	for i, e := range after {
		kinds[i] = e.kind
	}
	require.Contains(t, kinds, "reset", "what the first worker had said is taken back")
	require.Equal(t, "the whole answer", text(append(before, after...)))
	require.Len(t, model.Requests(), 2)
	require.Equal(t, 1, s.count(`select count(*) from runs where state = 'done' and attempts = 2`))
	require.Equal(t, 1, s.count(`select count(*) from outbox`))
	s.checkTiles()
}

func TestDrain_UnderLoadLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	const sessions = 40
	e := echo{hold: 200 * time.Millisecond}
	model := fakemodel.Start(t, e.reply)
	s := start(t, options{workers: 2, model: model.URL})
	for n := range 3 {
		for c := range sessions {
			conversation := fmt.Sprintf("c%02d", c)
			text := fmt.Sprintf("%s/%d", conversation, n)
			code, body := s.hook("id-"+text, conversation, text)
			require.Equal(t, http.StatusAccepted, code, body)
		}
		if n == 1 { // in the middle of it one worker is rolled
			for _, p := range s.processes {
				if p.name == "worker-0" {
					require.NoError(t, p.terminate())
				}
			}
		}
	}
	s.awaitReplies(3*sessions, 90*time.Second)
	for c := range sessions {
		conversation := fmt.Sprintf("c%02d", c)
		require.Equal(t, []string{"answer " + conversation + "/0", "answer " + conversation + "/1", "answer " + conversation + "/2"},
			s.receiver.Shown(conversation))
	}
	await.NoError(t, 20*time.Second, func() error {
		if n := s.count(`select count(*) from runs where state <> 'done'`); n != 0 {
			return fmt.Errorf("%d runs are not done", n)
		}
		return nil
	})
	s.checkTiles()
}
