package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

type chunk struct {
	ID, Object, Model string
	Choices           []struct {
		Delta        struct{ Role, Content string }
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
	Error *problem
}

func (s *stream) chunk() chunk {
	s.t.Helper()
	e, ok := s.next()
	require.True(s.t, ok, "the stream has ended")
	require.Empty(s.t, e.name)
	var c chunk
	require.NoError(s.t, json.Unmarshal([]byte(e.data), &c), e.data)
	spec, err := described()
	require.NoError(s.t, err)
	schema := "CompletionChunk"
	if c.Error != nil {
		schema = "Error"
	}
	require.NoError(s.t, spec.CheckSchema(schema, []byte(e.data)))
	return c
}

// says reads chunks with these pieces of text.
func (s *stream) says(pieces ...string) {
	s.t.Helper()
	for _, want := range pieces {
		c := s.chunk()
		require.Len(s.t, c.Choices, 1, want)
		require.Equal(s.t, want, c.Choices[0].Delta.Content)
		require.Nil(s.t, c.Choices[0].FinishReason)
	}
}

// stops reads the end of a good answer.
func (s *stream) stops() {
	s.t.Helper()
	c := s.chunk()
	require.Equal(s.t, "stop", *c.Choices[0].FinishReason)
	require.Empty(s.t, c.Choices[0].Delta.Content)
	s.expect(sse{data: "[DONE]"})
	_, ok := s.next()
	require.False(s.t, ok)
}

// streamed asks for a stream, which begins with its run.
func (d *api) streamed(body string, pairs ...string) (*stream, *run) {
	d.t.Helper()
	var s *stream
	var err error
	var asking sync.WaitGroup
	asking.Go(func() {
		s, err = d.request(http.MethodPost, completions, strings.Replace(body, "{", `{"stream":true,`, 1), pairs...)
	})
	r := d.taken(1)
	r.start()
	asking.Wait()
	require.NoError(d.t, err)
	first := s.chunk()
	require.Equal(d.t, "assistant", first.Choices[0].Delta.Role)
	require.Equal(d.t, r.id.String(), s.resp.Header.Get("X-Run-Id"))
	return s, r
}

func TestStreamedCompletion_IsAListOfChunks(t *testing.T) {
	t.Parallel()
	d := setup(t)
	s, r := d.streamed(strings.Replace(asked, "{", `{"stream_options":{"include_usage":true},`, 1))
	require.Equal(t, "text/event-stream", s.resp.Header.Get("Content-Type"))
	require.Equal(t, "no-cache, no-transform", s.resp.Header.Get("Cache-Control"))
	require.Equal(t, "no", s.resp.Header.Get("X-Accel-Buffering"))
	r.text("Hel")
	c := s.chunk()
	require.Equal(t, "chat.completion.chunk", c.Object)
	require.Equal(t, "chatcmpl-"+r.uid, c.ID)
	require.Equal(t, "default", c.Model)
	require.Equal(t, "Hel", c.Choices[0].Delta.Content)
	r.text("lo")
	s.says("lo")
	r.finish(store.RunDone, "Hello!") // the last piece was lost
	r.end()
	s.says("!")
	c = s.chunk()
	require.Equal(t, "stop", *c.Choices[0].FinishReason)
	c = s.chunk()
	require.Empty(t, c.Choices)
	require.Equal(t, [3]int{3, 4, 7}, [3]int{c.Usage.Prompt, c.Usage.Completion, c.Usage.Total})
	s.expect(sse{data: "[DONE]"})
}

func TestStreamedCompletion_KeepsWhatIsSaidBeforeTools(t *testing.T) {
	t.Parallel()
	d := setup(t)
	s, r := d.streamed(asked)
	r.text("let me see")
	r.step()
	r.tool(runv1.FrameKind_FRAME_KIND_TOOL_STARTED, "", "")
	r.tool(runv1.FrameKind_FRAME_KIND_TOOL_FINISHED, "", "ok")
	r.text("two")
	r.text(" files")
	s.says("let me see", "\n\ntwo", " files")
	r.finish(store.RunDone, "two files")
	r.end()
	s.stops()
}

func TestStreamedCompletion_GoesOnBehindAWorkerChangeThatContinues(t *testing.T) {
	t.Parallel()
	d := setup(t)
	s, r := d.streamed(asked)
	r.text("half an ans")
	s.says("half an ans")
	next := *r
	next.gen, next.n = r.gen+1, 0
	next.start()
	next.text("half ")
	r.text("of the zombie")
	next.text("an answer")
	s.says("wer")
	r.finish(store.RunDone, "half an answer")
	next.end()
	s.stops()
}

func TestStreamedCompletion_EndsWithAnErrorWhenTheAnswerBeginsAnew(t *testing.T) {
	t.Parallel()
	d := setup(t)
	s, r := d.streamed(asked)
	r.text("half an ans")
	s.says("half an ans")
	next := *r
	next.gen, next.n = r.gen+1, 0
	next.start()
	next.text("something else")
	c := s.chunk()
	require.Equal(t, problem{
		Message: "the answer begins anew with another text; the whole answer is at /v1/runs/" + r.id.String() + " once the run has ended",
		Type:    "conflict_error", Code: "answer_restarted",
	}, *c.Error)
	_, ok := s.next()
	require.False(t, ok)
	r.finish(store.RunDone, "something else")
	require.Equal(t, "something else", d.get("/v1/runs/"+r.id.String()).Text)
	require.Equal(t, 1, d.Stored(t), "the run was not stopped")
}

func TestStreamedCompletion_EndsWithTheErrorOfItsRun(t *testing.T) {
	t.Parallel()
	for state, code := range map[store.RunState]string{store.RunFailed: "run_failed", store.RunCancelled: "run_cancelled"} {
		d := setup(t)
		s, r := d.streamed(asked)
		r.text("half")
		s.says("half")
		r.finish(state, "half", "Sorry.")
		r.end()
		require.Equal(t, code, s.chunk().Error.Code)
		_, ok := s.next()
		require.False(t, ok)
	}
}

func TestStreamedCompletion_OfACommandIsItsNotice(t *testing.T) {
	t.Parallel()
	d := setup(t)
	got := make(chan string, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		s, err := d.request(http.MethodPost, completions, strings.Replace(strings.Replace(asked, "{", `{"stream":true,`, 1), "question", "/help", 1))
		if err != nil {
			got <- err.Error()
			return
		}
		got <- s.content()
	})
	require.Equal(t, event.KindCommand, d.received(1).Kind)
	d.admit(1, "**Commands**")
	asking.Wait()
	require.Equal(t, "**Commands**", <-got)
}

func TestStreamedCompletion_PingsAQuietStream(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Ping = 20 * time.Millisecond
	d := setupWith(t, short, noChange)
	s, err := d.request(http.MethodPost, completions, strings.Replace(asked, "{", `{"stream":true,`, 1))
	require.NoError(t, err)
	require.Equal(t, "assistant", s.chunk().Choices[0].Delta.Role, "the stream begins before the run")
	s.expect(sse{name: ": ping"}, sse{name: ": ping"})
}

func TestStreamedCompletion_CutsAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Write = 100 * time.Millisecond
	d := setupWith(t, short, noChange)
	d.client.Transport = &http.Transport{DialContext: dialNarrow, DisableKeepAlives: true}
	_, r := d.streamed(asked)
	for range 48 { // 12 MB, more than the buffers of the network hold
		r.text(strings.Repeat("x", 256<<10))
	}
	require.Equal(t, "/stop", d.received(2).Text)
}

func TestCompletions_HangUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header []string
		stops  bool
	}{
		"stateless":        {nil, true},
		"stateless, keyed": {[]string{"Idempotency-Key", "k"}, false},
		"session":          {[]string{"X-Session-Id", "s"}, false},
	} {
		for _, body := range []string{asked, strings.Replace(asked, "{", `{"stream":true,`, 1)} {
			d := setup(t)
			ctx, hangUp := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+completions, strings.NewReader(body))
			require.NoError(t, err)
			req.Header = jsonHeader(c.header...)
			var asking sync.WaitGroup
			asking.Go(func() {
				if resp, err := d.client.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			})
			m := d.received(1)
			listening := d.Server.Server().NumSubscriptions() // the feed is one
			hangUp()
			asking.Wait()
			await.True(t, testTimeout, func() bool { return d.Server.Server().NumSubscriptions() == listening-1 }, name)
			if !c.stops {
				d.say("later", "Idempotency-Key", "later") // nothing came between
				require.Equal(t, "later", d.received(2).Text, name)
				continue
			}
			stop := d.received(2)
			require.Equal(t, &event.Command{Name: "stop"}, stop.Command, name)
			require.Equal(t, m.SKey, stop.SKey, name)
			require.NotEqual(t, m.UID, stop.UID)
		}
	}
}
