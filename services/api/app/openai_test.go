package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

const completions = "/v1/chat/completions"

// asked is a plain question.
const asked = `{"model":"default","messages":[{"role":"user","content":"question"}]}`

// chat sends a request and leaves its answer to the test.
func (d *api) chat(body string, pairs ...string) <-chan result {
	d.t.Helper()
	return d.later(completions, jsonHeader(pairs...), body)
}

// refused sends a request that is answered at once.
func (d *api) refused(body string, pairs ...string) answer {
	d.t.Helper()
	return d.do(http.MethodPost, completions, jsonHeader(pairs...), body)
}

// received waits for the n-th message on the bus.
func (d *api) received(n int) *event.Message {
	d.t.Helper()
	await.True(d.t, testTimeout, func() bool { return d.Stored(d.t) >= n })
	m, err := event.Decode(d.Entry(d.t, n).Data)
	require.NoError(d.t, err)
	return m
}

// taken waits for the n-th message and begins its run.
func (d *api) taken(n int) *run {
	d.t.Helper()
	d.received(n)
	return d.admit(n, "").begin()
}

func withProfiles(c *config.Config) {
	c.Profiles["helper"] = c.Profiles[config.DefaultProfile]
	c.Profiles["writer"] = c.Profiles[config.DefaultProfile]
}

func TestModels_AreTheProfiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names []string
		want  []string
	}{{nil, []string{"default", "helper", "writer"}}, {[]string{"writer", "helper", "writer"}, []string{"helper", "writer"}}} {
		d := setupWith(t, timing(), func(cfg *config.Config) {
			withProfiles(cfg)
			cfg.API.Models = c.names
		})
		a := d.get("/v1/models")
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "list", a.Object)
		var ids []string
		for _, m := range a.members["data"].([]any) {
			m := m.(map[string]any)
			ids = append(ids, m["id"].(string))
			require.Equal(t, "model", m["object"])
			require.Equal(t, "hermes", m["owned_by"])
			require.Positive(t, m["created"])
		}
		require.Equal(t, c.want, ids)
		require.Equal(t, "writer", d.get("/v1/models/writer").ID)
		missing := d.get("/v1/models/nobody")
		require.Equal(t, http.StatusNotFound, missing.status)
		require.Equal(t, problem{
			Message: `model: "nobody" does not exist, GET /v1/models lists those that do`, Type: "invalid_request_error", Param: "model", Code: "model_not_found",
		}, missing.problem(t))
		require.Equal(t, len(c.want) == 3, d.get("/v1/models/default").status == http.StatusOK, "only what is listed can be used")
	}
}

func TestCompletions_AnswerAConversation(t *testing.T) {
	t.Parallel()
	d := setupWith(t, timing(), withProfiles)
	got := d.chat(`{"model":"helper","temperature":0.2,"user":"u","metadata":{"x":"y"},"response_format":{ "type": "text" },"n":1,"tools":[],"messages":[
		{"role":"developer","content":"Be brief."},
		{"role":"user","name":"ada","content":[{"type":"text","text":"one"},{"type":"text","text":"two"},{"type":"image_url","image_url":{"url":"https://x.example/old.png"}}]},
		{"role":"assistant","content":null,"tool_calls":[]},
		{"role":"assistant","content":"three"},
		{"role":"user","content":[{"type":"text","text":"four"},{"type":"image_url","image_url":{"url":"https://x.example/new.png","detail":"low"}}]}]}`)
	m := d.received(1)
	require.Equal(t, []event.Turn{
		{Role: "system", Text: "Be brief."}, {Role: "user", Text: "one\ntwo\n[image: https://x.example/old.png]"}, {Role: "assistant", Text: "three"},
	}, m.History)
	require.Equal(t, "four", m.Text)
	require.Equal(t, []event.Attachment{{Kind: "image", Ref: "https://x.example/new.png"}}, m.Attachments)
	require.Equal(t, "helper", m.Profile)
	require.Regexp(t, "^cc-[0-9a-f-]{36}$", m.ReplyTo.ChatID)
	require.True(t, m.ReplyTo.Read())
	require.True(t, strings.HasPrefix(m.SessionKey, "agent:helper:api:dm:cc-"))

	r := d.admit(1, "").begin()
	r.start()
	r.finish(store.RunDone, "the answer")
	r.end()
	a := d.await(got)
	require.Equal(t, http.StatusOK, a.status, a.members)
	require.Equal(t, "chatcmpl-"+m.UID, a.ID)
	require.Equal(t, "chat.completion", a.Object)
	require.Equal(t, "helper", a.Model)
	require.Len(t, a.Choices, 1)
	require.Equal(t, "assistant", a.Choices[0].Message.Role)
	require.Equal(t, "the answer", a.Choices[0].Message.Content)
	require.Equal(t, "stop", a.Choices[0].FinishReason)
	require.JSONEq(t, `{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}`, string(a.Usage))
	require.Equal(t, r.id.String(), a.header.Get("X-Run-Id"))
	require.Equal(t, r.message(), a.header.Get("X-Request-Id"))
	require.Equal(t, "the answer", d.get("/v1/runs/"+r.message()).Text)

	d.chat(asked)
	require.NotEqual(t, m.ReplyTo.ChatID, d.received(2).ReplyTo.ChatID, "each request is a conversation of its own")
}

func TestCompletions_NameWhatIsWrongAndStoreNothing(t *testing.T) {
	t.Parallel()
	d := setup(t)
	user := `[{"role":"user","content":"x"}]`
	for _, c := range []struct{ body, param, code, message string }{
		{`[]`, "body", "invalid_field", "body: is not a JSON object"},
		{`{"messages":` + user + `}`, "model", "invalid_field", "model: must not be empty"},
		{`{"model":7,"messages":` + user + `}`, "model", "invalid_field", "model: must be a string"},
		{`{"model":"default"}`, "messages", "invalid_field", "messages: must not be empty"},
		{`{"model":"default","messages":"x"}`, "messages", "invalid_field", "messages: must be an array of objects with a role and content"},
		{`{"model":"default","stream":"yes","messages":` + user + `}`, "stream", "invalid_field", "stream: must be true or false"},
		{`{"model":"default","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`, "messages", "invalid_field", "messages: the last one must have the role user"},
		{`{"model":"default","messages":[{"role":"robot","content":"x"},{"role":"user","content":"x"}]}`, "messages[0].role", "invalid_field", "messages[0].role: must be one of system, developer, user, assistant"},
		{`{"model":"default","messages":[{"role":"tool","content":"x"},{"role":"user","content":"x"}]}`, "messages[0].role", "invalid_field", "messages[0].role: tool is not supported: the agent calls the tools of its profile, a client cannot bring its own"},
		{`{"model":"default","messages":[{"role":"assistant","tool_calls":[{"id":"1"}]},{"role":"user","content":"x"}]}`, "messages[0].tool_calls", "invalid_field", "messages[0].tool_calls: is not supported: the agent calls the tools of its profile, a client cannot bring its own"},
		{`{"model":"default","messages":[{"role":"user"}]}`, "messages[0].content", "invalid_field", "messages[0].content: must be a string or an array of parts"},
		{`{"model":"default","messages":[{"role":"user","content":7}]}`, "messages[0].content", "invalid_field", "messages[0].content: must be a string or an array of parts"},
		{`{"model":"default","messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`, "messages[0].content[0].type", "invalid_field", "messages[0].content[0].type: must be text or image_url"},
		{`{"model":"default","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`, "messages[0].content[0].image_url.url", "invalid_field", "messages[0].content[0].image_url.url: must be an http or https URL; images within the request are not supported"},
		{`{"model":"default","messages":[{"role":"user","content":" "}]}`, "messages", "invalid_field", "messages: has no content"},
		{`{"model":"default","metadata":{"session_id":7},"messages":` + user + `}`, "metadata", "invalid_field", "metadata: must be an object of strings"},
		{`{"model":"default","metadata":{"session_id":"a\u0000"},"messages":` + user + `}`, "metadata.session_id", "invalid_field", "metadata.session_id: contains a NUL byte"},
		{`{"model":"default","tools":[{"type":"function"}],"messages":` + user + `}`, "tools", "unsupported_parameter", "tools: is not supported: the agent calls the tools of its profile, a client cannot bring its own"},
		{`{"model":"default","functions":[{}],"messages":` + user + `}`, "functions", "unsupported_parameter", "functions: is not supported: the agent calls the tools of its profile, a client cannot bring its own"},
		{`{"model":"default","tool_choice":"required","messages":` + user + `}`, "tool_choice", "unsupported_parameter", "tool_choice: is not supported: the agent calls the tools of its profile, a client cannot bring its own"},
		{`{"model":"default","n":2,"messages":` + user + `}`, "n", "unsupported_parameter", "n: is not supported: one answer is given"},
		{`{"model":"default","response_format":{"type":"json_schema"},"messages":` + user + `}`, "response_format", "unsupported_parameter", "response_format: is not supported: answers are text"},
		{`{"model":"default","modalities":["text","audio"],"messages":` + user + `}`, "modalities", "unsupported_parameter", "modalities: is not supported: answers are text"},
		{`{"model":"default","audio":{"voice":"x"},"messages":` + user + `}`, "audio", "unsupported_parameter", "audio: is not supported: answers are text"},
		{`{"model":"default","logprobs":true,"messages":` + user + `}`, "logprobs", "unsupported_parameter", "logprobs: is not supported: is not known of an agent's answer"},
		{`{"model":"default","stop":["x"],"messages":` + user + `}`, "stop", "unsupported_parameter", "stop: is not supported: an agent's answer is not cut"},
	} {
		a := d.refused(c.body)
		require.Equal(t, http.StatusBadRequest, a.status, c.body)
		require.Equal(t, problem{Message: c.message, Type: "invalid_request_error", Param: c.param, Code: c.code}, a.problem(t), c.body)
	}
	unknown := d.refused(`{"model":"gpt-4","messages":` + user + `}`)
	require.Equal(t, http.StatusNotFound, unknown.status)
	require.Equal(t, "model_not_found", unknown.problem(t).Code)
	large := d.refused(`{"model":"default","messages":[{"role":"user","content":"` + strings.Repeat("x", 70<<10) + `"}]}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, large.status)
	both := d.refused(`{"model":"default","metadata":{"session_id":"a"},"messages":`+user+`}`, "X-Session-Id", "b")
	require.Equal(t, "metadata.session_id", both.problem(t).Param)
	require.Equal(t, "X-Session-Id", d.refused(asked, "X-Session-Id", strings.Repeat("a", 513)).problem(t).Param)
	require.Equal(t, "X-Busy-Policy", d.refused(asked, "X-Busy-Policy", "hurry").problem(t).Param)
	inBody := `{"model":"default","metadata":{"busy_policy":"hurry"},"messages":` + user + `}`
	require.Equal(t, "metadata.busy_policy", d.refused(inBody).problem(t).Param)
	require.Equal(t, "metadata.busy_policy", d.refused(inBody, "X-Busy-Policy", "latest").problem(t).Param, "they differ")
	require.Equal(t, http.StatusUnsupportedMediaType, d.refused(asked, "Content-Type", "text/plain").status)
	require.Zero(t, d.Stored(t))
}

func TestCompletions_OfASessionUseTheHistoryOfTheServer(t *testing.T) {
	t.Parallel()
	d := setup(t)
	long := `"messages":[{"role":"system","content":"s"},{"role":"user","content":"old"},{"role":"assistant","content":"a"},{"role":"user","content":"new"}]`
	first := d.chat(`{"model":"default",`+long+`}`, "X-Session-Id", "my session")
	m := d.received(1)
	require.Empty(t, m.History)
	require.Equal(t, "new", m.Text)
	require.Equal(t, "my session", m.ReplyTo.ChatID)
	r := d.admit(1, "").begin()
	r.finish(store.RunDone, "one")
	r.end()
	require.Equal(t, "one", d.await(first).Choices[0].Message.Content)
	require.Equal(t, http.StatusOK, d.get("/v1/sessions/my%20session").status, "it is the session of the native API")

	d.chat(`{"model":"default","metadata":{"session_id":"my session"},` + long + `}`)
	require.Equal(t, m.SKey, d.received(2).SKey)
	native := d.do(http.MethodPost, "/v1/sessions/my%20session/messages", jsonHeader(), `{"text":"native"}`)
	require.Equal(t, http.StatusAccepted, native.status)
	require.Equal(t, m.SKey, d.received(3).SKey)
}

func TestCompletions_CarryTheBusyPolicyOfTheMessage(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.chat(asked, "X-Session-Id", "s", "X-Busy-Policy", "steer")
	require.Equal(t, event.PolicySteer, d.received(1).BusyPolicy)
	d.chat(`{"model":"default","metadata":{"session_id":"s","busy_policy":"interrupt"},"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, event.PolicyInterrupt, d.received(2).BusyPolicy)
	d.chat(asked, "X-Session-Id", "s")
	require.Empty(t, d.received(3).BusyPolicy)
}

func TestCompletions_SameKeyWaitsForTheSameRun(t *testing.T) {
	t.Parallel()
	d := withKeys(t)
	ann := []string{"Authorization", "Bearer ann-key", "Idempotency-Key", "k"}
	first := d.chat(asked, ann...)
	r := d.taken(1)
	again := d.chat(asked, ann...)
	var stream *stream
	var err error
	var streaming sync.WaitGroup
	streaming.Go(func() {
		stream, err = d.request(http.MethodPost, completions, strings.Replace(asked, "{", `{"stream":true,`, 1), ann...)
	})
	r.finish(store.RunDone, "once")
	r.end()
	for _, a := range []answer{d.await(first), d.await(again), d.await(d.chat(asked, ann...))} {
		require.Equal(t, http.StatusOK, a.status, a.members)
		require.Equal(t, "once", a.Choices[0].Message.Content)
	}
	streaming.Wait()
	require.NoError(t, err)
	require.Equal(t, "once", stream.content())
	require.Equal(t, 1, d.Stored(t))

	other := d.refused(strings.Replace(asked, "question", "other", 1), ann...)
	require.Equal(t, http.StatusConflict, other.status)
	require.Equal(t, "idempotency_conflict", other.problem(t).Code)
	require.Equal(t, 1, d.Stored(t))

	d.chat(asked, "Authorization", "Bearer bob-key", "Idempotency-Key", "k")
	require.Equal(t, "acme", d.received(2).Tenant, "keys belong to a user")
}

// content reads a stream of chunks to its end and returns the text.
func (s *stream) content() string {
	s.t.Helper()
	var text strings.Builder
	for {
		e, ok := s.next()
		require.True(s.t, ok, "the stream has ended early, after %q", text.String())
		if e.data == "[DONE]" {
			return text.String()
		}
		var c chunk
		require.NoError(s.t, json.Unmarshal([]byte(e.data), &c), e.data)
		for _, choice := range c.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
}

func TestCompletions_TellWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Settle = 50 * time.Millisecond // no frame comes
	for name, c := range map[string]struct {
		end    func(d *api)
		status int
		want   problem
		retry  string
	}{
		"failed": {
			func(d *api) { d.taken(1).finish(store.RunFailed, "Sorry, no.") },
			500,
			problem{"Sorry, no.", "internal_error", "", "run_failed"},
			"false",
		},
		"cancelled": {
			func(d *api) { d.taken(1).finish(store.RunCancelled, "half", "Stopped.") },
			409,
			problem{"the run was stopped", "conflict_error", "", "run_cancelled"},
			"false",
		},
		"refused": {
			func(d *api) { d.received(1); d.admitAs(1, store.KindRefused, "Too many messages wait.") },
			429,
			problem{"Too many messages wait.", "rate_limit_error", "", "message_refused"},
			"true",
		},
		"superseded": {
			func(d *api) { d.received(1); d.supersede(1) },
			409,
			problem{"a newer message of the session took the place of this one", "conflict_error", "", "message_superseded"},
			"false",
		},
	} {
		for _, body := range []string{asked, strings.Replace(asked, "{", `{"stream":true,`, 1)} {
			d := setupWith(t, short, noChange)
			got := d.chat(body, "X-Session-Id", "s")
			c.end(d)
			a := d.await(got)
			require.Equal(t, c.status, a.status, name)
			require.Equal(t, c.want, a.problem(t), name)
			require.Equal(t, c.retry, a.header.Get("X-Should-Retry"), name)
			require.Equal(t, c.status == 429, a.header.Get("Retry-After") == "5", name)
		}
	}
}

// supersede lets a newer message of session s take the place of the n-th one, which is its first.
func (d *api) supersede(n int) {
	d.t.Helper()
	first := d.admit(n, "")
	d.say("newer")
	newer := d.admit(n+1, "")
	newer.id, newer.gen = first.id, first.gen
	newer.begin().finishFrom(first.seq, store.RunDone, "answer to the newer one")
	newer.end()
}

func TestCompletions_TimeOutAndLetTheRunGoOn(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Answer, short.Settle = 2*time.Second, 50*time.Millisecond
	d := setupWith(t, short, noChange)
	got := d.chat(asked, "Idempotency-Key", "k")
	r := d.taken(1)
	r.snapshots(r.wholeSnapshot("so far", 5))
	a := d.await(got)
	require.Equal(t, http.StatusGatewayTimeout, a.status, a.members)
	require.Equal(t, "wait_timeout", a.problem(t).Code)
	require.Equal(t, r.id.String(), a.header.Get("X-Run-Id"))
	require.Contains(t, a.problem(t).Message, "/v1/runs/"+r.id.String())
	require.Equal(t, "true", a.header.Get("X-Should-Retry"), "a repetition waits for the same run")
	r.finish(store.RunDone, "late")
	require.Equal(t, "late", d.await(d.chat(asked, "Idempotency-Key", "k")).Choices[0].Message.Content)
	require.Equal(t, 1, d.Stored(t), "nothing was stopped")

	unkeyed := d.await(d.chat(asked))
	require.Equal(t, http.StatusGatewayTimeout, unkeyed.status)
	require.Equal(t, "false", unkeyed.header.Get("X-Should-Retry"), "a repetition would be another run")
	require.Contains(t, unkeyed.problem(t).Message, "/v1/runs/"+unkeyed.header.Get("X-Request-Id"))
	require.Equal(t, 2, d.Stored(t), "nothing was stopped")
}

func TestCompletions_EndWhenTheServiceStops(t *testing.T) {
	t.Parallel()
	d := setup(t)
	stateless, session := d.chat(asked), d.chat(asked, "X-Session-Id", "s")
	d.received(2)
	servicetest.Stop(t, d.app)
	a := d.await(stateless)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "stopping", a.problem(t).Code)
	require.Equal(t, "true", a.header.Get("X-Should-Retry"))
	require.Equal(t, "false", d.await(session).header.Get("X-Should-Retry"), "it would say everything twice")
	require.Equal(t, "/stop", d.received(3).Text, "the run of the stateless one")
	require.Equal(t, 3, d.Stored(t))
}
