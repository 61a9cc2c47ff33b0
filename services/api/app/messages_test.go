package app_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/api/app"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func TestPost_AcceptsAMessage(t *testing.T) {
	t.Parallel()
	d := setup(t)
	a := d.do(http.MethodPost, "/v1/sessions/a:b%2F%25%20c/messages", jsonHeader("Idempotency-Key", "key 1"),
		`{"text":"hello","attachments":[{"kind":"image","ref":"blob:1","mime":"image/png","size":7,"name":"x.png"}]}`)
	require.Equal(t, http.StatusAccepted, a.status, a.members)
	require.Equal(t, "a:b/% c", a.SessionID)
	require.Nil(t, a.RunID)
	require.Contains(t, a.members, "run_id")
	require.False(t, a.Duplicate)
	require.Equal(t, "/v1/runs/"+a.MessageID+"/events", a.EventsURL)
	require.Equal(t, 1, d.Stored(t))

	entry := d.Entry(t, 1)
	m, err := event.Decode(entry.Data)
	require.NoError(t, err)
	require.Equal(t, a.MessageID, accept.MessageID(m.SKey, m.UID))
	require.Equal(t, m.UID, entry.ID)
	require.Equal(t, session.Source{Platform: "api", Account: "api", ChatID: "a%3Ab/%25 c", ChatType: "dm", UserID: "local"}, m.Source)
	require.Equal(t, "agent:main:api:dm:a%3Ab/%25 c", m.SessionKey)
	require.Equal(t, event.Address{Platform: "api", Account: "api", ChatID: "a:b/% c"}, m.ReplyTo)
	require.True(t, m.ReplyTo.Read())
	require.Equal(t, "hello", m.Text)
	require.Equal(t, []event.Attachment{{Kind: "image", Ref: "blob:1", MIME: "image/png", Size: 7, Name: "x.png"}}, m.Attachments)
	require.Equal(t, "key 1", m.PlatformMessageID)
	require.Equal(t, "default", m.Tenant)
	require.Equal(t, "default", m.RunClass)
	require.Equal(t, event.KindMessage, m.Kind)
	require.Len(t, m.Fingerprint, 64)
	require.Empty(t, m.BusyPolicy, "it is left to the profile")
}

func TestPost_CarriesTheBusyPolicyOfTheMessage(t *testing.T) {
	t.Parallel()
	d := setup(t)
	for i, p := range event.Policies() {
		a := d.do(http.MethodPost, "/v1/sessions/s/messages", jsonHeader(), `{"text":"x","busy_policy":"`+string(p)+`"}`)
		require.Equal(t, http.StatusAccepted, a.status, a.members)
		m, err := event.Decode(d.Entry(t, i+1).Data)
		require.NoError(t, err)
		require.Equal(t, p, m.BusyPolicy)
	}
}

func TestPost_TheSameKeyWithAnotherPolicyIsAConflict(t *testing.T) {
	t.Parallel()
	d := setup(t)
	first := d.do(http.MethodPost, "/v1/sessions/s/messages", jsonHeader("Idempotency-Key", "k"), `{"text":"x","busy_policy":"steer"}`)
	require.Equal(t, http.StatusAccepted, first.status)
	d.admit(1, "")
	other := d.do(http.MethodPost, "/v1/sessions/s/messages", jsonHeader("Idempotency-Key", "k"), `{"text":"x","busy_policy":"latest"}`)
	require.Equal(t, http.StatusConflict, other.status)
	require.Equal(t, "idempotency_conflict", other.problem(t).Code)
}

func TestPost_WithoutAKeyIsANewMessageEachTime(t *testing.T) {
	t.Parallel()
	d := setup(t)
	first, second := d.say("x"), d.say("x")
	require.NotEqual(t, first.MessageID, second.MessageID)
	require.Equal(t, 2, d.Stored(t))
	m, err := event.Decode(d.Entry(t, 1).Data)
	require.NoError(t, err)
	require.Equal(t, uuid.Version(7), uuid.MustParse(m.PlatformMessageID).Version())
}

func TestPost_NamesWhatIsWrongAndStoresNothing(t *testing.T) {
	t.Parallel()
	d := setup(t)
	long := strings.Repeat("a", 513)
	twice := jsonHeader("Idempotency-Key", "a")
	twice.Add("Idempotency-Key", "b")
	for _, c := range []struct {
		name, path, body string
		header           http.Header
		status           int
		param, error     string
	}{
		{"empty id", "/v1/sessions//messages", `{"text":"x"}`, jsonHeader(), 400, "id", "id: must not be empty"},
		{"long id", "/v1/sessions/" + long + "/messages", `{"text":"x"}`, jsonHeader(), 400, "id", "id: 513 bytes, at most 512 are allowed"},
		{"policy", "/v1/sessions/s/messages", `{"text":"x","busy_policy":"hurry"}`, jsonHeader(), 400, "busy_policy", `busy_policy: "hurry" is none of queue, collect, latest, steer, interrupt, reject`},
		{"policy type", "/v1/sessions/s/messages", `{"text":"x","busy_policy":7}`, jsonHeader(), 400, "busy_policy", "busy_policy: must be a string"},
		{"NUL in id", "/v1/sessions/a%00/messages", `{"text":"x"}`, jsonHeader(), 400, "id", "id: contains a NUL byte"},
		{"id not UTF-8", "/v1/sessions/a%ff/messages", `{"text":"x"}`, jsonHeader(), 400, "id", "id: not valid UTF-8"},
		{"unknown member", "", `{"text":"x","txet":"y"}`, jsonHeader(), 400, "txet", "txet: is not known"},
		{"other case", "", `{"Text":"x"}`, jsonHeader(), 400, "Text", "Text: is not known"},
		{"text type", "", `{"text":1}`, jsonHeader(), 400, "text", "text: must be a string"},
		{"no text", "", `{}`, jsonHeader(), 400, "text", "text: has no content"},
		{"empty text", "", `{"text":" "}`, jsonHeader(), 400, "text", "text: has no content"},
		{"invisible text", "", `{"text":"\u200b\ufeff"}`, jsonHeader(), 400, "text", "text: has no content"},
		{"attachments type", "", `{"text":"x","attachments":{}}`, jsonHeader(), 400, "attachments", "attachments: must be an array"},
		{"attachment type", "", `{"attachments":["x"]}`, jsonHeader(), 400, "attachments[0]", "attachments[0]: is not a JSON object"},
		{"attachment member", "", `{"attachments":[{"kind":"image","url":"x"}]}`, jsonHeader(), 400, "attachments[0].url", "attachments[0].url: is not known"},
		{"attachment size", "", `{"attachments":[{"kind":"image","ref":"x","size":1.5}]}`, jsonHeader(), 400, "attachments[0].size", "attachments[0].size: must be an integer"},
		{"negative size", "", `{"attachments":[{"kind":"image","ref":"x","size":-1}]}`, jsonHeader(), 400, "attachments[0].size", "attachments[0].size: must not be negative"},
		{"attachment kind", "", `{"attachments":[{"ref":"x"}]}`, jsonHeader(), 400, "attachments[0].kind", "attachments[0].kind: must not be empty"},
		{"attachment ref", "", `{"attachments":[{"kind":"image","ref":"x"},{"kind":"image"}]}`, jsonHeader(), 400, "attachments[1].ref", "attachments[1].ref: must not be empty"},
		{"NUL in a name", "", `{"attachments":[{"kind":"image","ref":"x","name":"a\u0000"}]}`, jsonHeader(), 400, "attachments[0].name", "attachments[0].name: contains a NUL byte"},
		{"many attachments", "", `{"attachments":[` + strings.Repeat(`{"kind":"k","ref":"r"},`, 32) + `{"kind":"k","ref":"r"}]}`, jsonHeader(), 400, "attachments", "attachments: 33, at most 32 are allowed"},
		{"array", "", `[]`, jsonHeader(), 400, "body", "body: is not a JSON object"},
		{"null", "", `null`, jsonHeader(), 400, "body", "body: is not a JSON object"},
		{"two values", "", `{"text":"x"} {}`, jsonHeader(), 400, "body", "body: is not a JSON object"},
		{"no JSON", "", `text=x`, jsonHeader(), 400, "body", "body: is not a JSON object"},
		{"invalid UTF-8", "", "{\"text\":\"\xff\"}", jsonHeader(), 400, "body", "body: not valid UTF-8"},
		{"form", "", `text=x`, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, 415, "Content-Type", "Content-Type: must be application/json"},
		{"no type", "", `{"text":"x"}`, http.Header{}, 415, "Content-Type", "Content-Type: must be application/json"},
		{"too large", "", `{"text":"` + strings.Repeat("a", 64<<10) + `"}`, jsonHeader(), 413, "body", "body: over 65536 bytes"},
		{"empty key", "", `{"text":"x"}`, jsonHeader("Idempotency-Key", ""), 400, "Idempotency-Key", "Idempotency-Key: must not be empty"},
		{"long key", "", `{"text":"x"}`, jsonHeader("Idempotency-Key", long[:256]), 400, "Idempotency-Key", "Idempotency-Key: 256 bytes, at most 255 are allowed"},
		{"strange key", "", `{"text":"x"}`, jsonHeader("Idempotency-Key", "ä"), 400, "Idempotency-Key", "Idempotency-Key: only printable ASCII characters are allowed"},
		{"two keys", "", `{"text":"x"}`, twice, 400, "Idempotency-Key", "Idempotency-Key: is there more than once"},
		{"wait", "?wait=soon", `{"text":"x"}`, jsonHeader(), 400, "wait", "wait: must be a number of seconds from 0 to 120"},
		{"empty wait", "?wait=", `{"text":"x"}`, jsonHeader(), 400, "wait", "wait: must be a number of seconds from 0 to 120"},
		{"long wait", "?wait=121", `{"text":"x"}`, jsonHeader(), 400, "wait", "wait: must be a number of seconds from 0 to 120"},
		{"negative wait", "?wait=-1", `{"text":"x"}`, jsonHeader(), 400, "wait", "wait: must be a number of seconds from 0 to 120"},
	} {
		path := c.path
		if !strings.HasPrefix(path, "/") {
			path = "/v1/sessions/s/messages" + path
		}
		a := d.do(http.MethodPost, path, c.header, c.body)
		require.Equal(t, c.status, a.status, c.name)
		p := a.problem(t)
		require.Equal(t, c.param, p.Param, c.name)
		require.Equal(t, c.error, p.Message, c.name)
		require.Equal(t, "invalid_request_error", p.Type, c.name)
		require.NotEmpty(t, p.Code, c.name)
	}
	require.Zero(t, d.Stored(t))
}

func TestPost_IDsOfClientsNeverShareASession(t *testing.T) {
	t.Parallel()
	d := setup(t)
	skeys := map[string]string{}
	for _, id := range []string{"a", "A", "a.b", "a b", "*", ">", "%3A", ":", "a:b", "a%3Ab", "a%2Fb", "a/b", "日本", "..", strings.Repeat("x", 512), "a\r\nPUB x"} {
		escaped := strings.ReplaceAll(pathEscape(id), ".", "%2E")
		a := d.do(http.MethodPost, "/v1/sessions/"+escaped+"/messages", jsonHeader("Idempotency-Key", "same"), `{"text":"x"}`)
		require.Equal(t, http.StatusAccepted, a.status, "%q: %v", id, a.members)
		require.Equal(t, id, a.SessionID)
		skey, _, ok := accept.ParseMessageID(a.MessageID)
		require.True(t, ok)
		require.NotContains(t, skeys, skey, "%q and %q", id, skeys[skey])
		skeys[skey] = id
	}
	require.Equal(t, len(skeys), d.Stored(t))
}

func pathEscape(id string) string {
	var b strings.Builder
	for i := range len(id) {
		b.WriteString("%" + strconv.FormatInt(int64(id[i])+0x100, 16)[1:])
	}
	return b.String()
}

func TestPost_RepeatIsADuplicateBeforeAndAfterAdmission(t *testing.T) {
	t.Parallel()
	d := setup(t)
	first := d.say("hello", "Idempotency-Key", "k")
	again := d.say("hello", "Idempotency-Key", "k") // a second passes, since the message is not admitted
	require.True(t, again.Duplicate)
	require.Equal(t, first.MessageID, again.MessageID)
	require.Nil(t, again.RunID)

	r := d.admit(1, "").begin()
	r.finish(store.RunDone, "hi")
	again = d.post(`{ "attachments": [], "text": "hello" }`, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, again.status, "the same body in another form: %v", again.members)
	require.True(t, again.Duplicate)
	require.Equal(t, r.id.String(), *again.RunID)
	require.Equal(t, 1, d.Stored(t), "what the store knows is not published again")
}

func TestPost_SameKeyWithAnotherBodyIsAConflict(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("hello", "Idempotency-Key", "k")
	d.admit(1, "")
	for _, path := range []string{"", "?wait=5"} {
		a := d.do(http.MethodPost, "/v1/sessions/s/messages"+path, jsonHeader("Idempotency-Key", "k"), `{"text":"other"}`)
		require.Equal(t, http.StatusConflict, a.status, a.members)
		require.Equal(t, problem{
			Message: "Idempotency-Key: was used with another body", Type: "conflict_error", Param: "Idempotency-Key", Code: "idempotency_conflict",
		}, a.problem(t))
	}
	other := d.do(http.MethodPost, "/v1/sessions/other/messages", jsonHeader("Idempotency-Key", "k"), `{"text":"other"}`)
	require.Equal(t, http.StatusAccepted, other.status, "keys belong to a session")
	require.Equal(t, 2, d.Stored(t))
}

func TestPost_ConflictIsToldAfterTheBrokerSawTheKey(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("hello", "Idempotency-Key", "k")
	d.admit(1, "")
	d.store.missed.Store(3) // before the message is published, and some more
	require.Equal(t, http.StatusConflict, d.post(`{"text":"other"}`, "Idempotency-Key", "k").status)
	require.Negative(t, d.store.missed.Load())
	require.Equal(t, 1, d.Stored(t))
}

func TestPost_StreamsItsRunHoweverFastItIs(t *testing.T) {
	t.Parallel()
	d := setup(t)
	s := d.stream(`{"text":"x"}`, "Idempotency-Key", "k")
	e, ok := s.next()
	require.True(t, ok)
	require.Equal(t, "accepted", e.name)
	r := d.admit(1, "").begin()
	require.JSONEq(t, `{"message_id":"`+r.message()+`","session_id":"s","run_id":null,"events_url":"/v1/runs/`+r.message()+`/events","duplicate":false}`, e.data)

	r.finish(store.RunDone, "two files") // the store knows the end before the frames arrive
	r.start()
	r.tool(runv1.FrameKind_FRAME_KIND_TOOL_STARTED, "", "")
	r.tool(runv1.FrameKind_FRAME_KIND_TOOL_FINISHED, "", "ok")
	r.end()
	s.expect(
		sse{"1:1", "run_started", r.id1()},
		sse{"1:2", "tool_started", `{"tool":"list_files","call_id":"c1"}`},
		sse{"1:3", "tool_finished", `{"tool":"list_files","call_id":"c1","outcome":"ok"}`},
	)
	s.expectEnd("done", r.final("two files"))

	again := d.stream(`{"text":"x"}`, "Idempotency-Key", "k")
	e, ok = again.next()
	require.True(t, ok)
	require.Contains(t, e.data, `"duplicate":true`)
	again.expectEnd("done", r.final("two files"))
	require.Equal(t, 1, d.Stored(t))

	conflict := d.post(`{"text":"y"}`, "Idempotency-Key", "k", "Accept", "text/event-stream")
	require.Equal(t, http.StatusConflict, conflict.status)
}

func TestWait_TellsAConflictBeforeItAnswers(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("hello", "Idempotency-Key", "k")
	d.admit(1, "").begin().finish(store.RunDone, "the answer to hello")
	d.store.missed.Store(14) // more than are looked for in the second before the wait begins
	a := d.do(http.MethodPost, "/v1/sessions/s/messages?wait=20", jsonHeader("Idempotency-Key", "k"), `{"text":"other"}`)
	require.Equal(t, http.StatusConflict, a.status, a.members)
	require.Empty(t, a.Text)
}

func TestWait_AnswersWhenTheRunHasEnded(t *testing.T) {
	t.Parallel()
	for state, want := range map[store.RunState]string{store.RunDone: "done", store.RunFailed: "failed", store.RunCancelled: "cancelled"} {
		d := setup(t)
		got := d.later("/v1/sessions/s/messages?wait=20", jsonHeader("Idempotency-Key", "k"), `{"text":"x"}`)
		await.True(t, testTimeout, func() bool { return d.Stored(t) == 1 })
		r := d.admit(1, "").begin()
		r.finish(state, "first", "second")
		r.n = 7
		r.end()
		a := d.await(got)
		require.Equal(t, http.StatusOK, a.status, a.members)
		require.Equal(t, want, a.State)
		require.Equal(t, "first\n\nsecond", a.Text)
		require.Equal(t, r.id.String(), *a.RunID)
		require.Equal(t, r.message(), a.MessageID)
		require.Equal(t, "s", a.SessionID)
		require.JSONEq(t, `{"input_tokens":3,"output_tokens":4}`, string(a.Usage))
		require.False(t, a.Duplicate)

		again := d.do(http.MethodPost, "/v1/sessions/s/messages?wait=20", jsonHeader("Idempotency-Key", "k"), `{"text":"x"}`)
		require.Equal(t, http.StatusOK, again.status)
		require.Equal(t, a.Text, again.Text)
		require.True(t, again.Duplicate)
		require.Equal(t, 1, d.Stored(t))
	}
}

func TestWait_OfACommandIsItsNotice(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("/help", "Idempotency-Key", "k")
	m, err := event.Decode(d.Entry(t, 1).Data)
	require.NoError(t, err)
	require.Equal(t, event.KindCommand, m.Kind)
	d.admit(1, "**Commands**")
	a := d.do(http.MethodPost, "/v1/sessions/s/messages?wait=20", jsonHeader("Idempotency-Key", "k"), `{"text":"/help"}`)
	require.Equal(t, http.StatusOK, a.status, a.members)
	require.Equal(t, "done", a.State)
	require.Equal(t, "**Commands**", a.Text)
	require.Nil(t, a.RunID)
}

func TestWait_TimesOutWithTheIDs(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x", "Idempotency-Key", "k")
	r := d.admit(1, "").begin()
	r.snapshots(r.wholeSnapshot("so far", 5))
	a := d.do(http.MethodPost, "/v1/sessions/s/messages?wait=1", jsonHeader("Idempotency-Key", "k"), `{"text":"x"}`)
	require.Equal(t, http.StatusGatewayTimeout, a.status, a.members)
	require.Equal(t, "timeout_error", a.problem(t).Type)
	require.Equal(t, r.message(), a.MessageID)
	require.Equal(t, "s", a.SessionID)
	require.Equal(t, r.id.String(), *a.RunID)
	require.Equal(t, "/v1/runs/"+r.message()+"/events", a.EventsURL)
}

func TestWait_EndsWhenTheServiceStops(t *testing.T) {
	t.Parallel()
	d := setup(t)
	got := d.later("/v1/sessions/s/messages?wait=100", jsonHeader(), `{"text":"x"}`)
	await.True(t, testTimeout, func() bool { return d.Stored(t) == 1 })
	servicetest.Stop(t, d.app)
	a := d.await(got)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "stopping", a.problem(t).Code)
	require.NotEmpty(t, a.MessageID)
}

func TestPost_StoreDownStillAccepts(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.store.down.Store(true)
	a := d.say("x", "Idempotency-Key", "k")
	require.Nil(t, a.RunID)
	require.False(t, a.Duplicate)
	require.Equal(t, 1, d.Stored(t))

	again := d.say("x", "Idempotency-Key", "k")
	require.True(t, again.Duplicate, "as the broker says")
	require.Equal(t, 1, d.Stored(t))
}

func TestPost_BrokerDownIsUnavailable(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("known", "Idempotency-Key", "k")
	d.admit(1, "")
	require.NoError(t, d.Server.Shutdown())
	a := d.post(`{"text":"x"}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "unavailable_error", a.problem(t).Type)
	require.Equal(t, "5", a.header.Get("Retry-After"))

	again := d.say("known", "Idempotency-Key", "k")
	require.True(t, again.Duplicate, "the store has it")
}

func TestSession_ShowsWhatItIsDoing(t *testing.T) {
	t.Parallel()
	d := setup(t)
	require.Equal(t, http.StatusNotFound, d.get("/v1/sessions/s").status)
	for range 3 {
		d.say("x")
	}
	r := d.admit(1, "")
	d.admit(2, "")
	d.admit(3, "")
	a := d.get("/v1/sessions/s")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "s", a.SessionID)
	require.Equal(t, "queued", a.State)
	require.Equal(t, 2, a.Waiting)
	require.Equal(t, r.id.String(), *a.RunID)
	s, err := d.Store.Session(t.Context(), r.skey)
	require.NoError(t, err)
	require.Equal(t, s.SessionID.String(), a.ConversationID)

	r.begin().finish(store.RunDone, "hi")
	a = d.get("/v1/sessions/s")
	require.Equal(t, "queued", a.State)
	require.Equal(t, 1, a.Waiting)
	require.NotEqual(t, r.id.String(), *a.RunID)

	require.Equal(t, "id", d.get("/v1/sessions/a%00").problem(t).Param)
	d.store.down.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, d.get("/v1/sessions/s").status)
}

func TestUnknownPathsAndMethods_AnswerInJSON(t *testing.T) {
	t.Parallel()
	d := setup(t)
	require.Equal(t, "not_found_error", d.get("/v1/nothing").problem(t).Type)
	require.Equal(t, http.StatusNotFound, d.get("/v1/sessions/../x").status)
	a := d.do(http.MethodPut, "/v1/sessions/s/messages", jsonHeader(), `{}`)
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, "POST", a.header.Get("Allow"))
	require.Equal(t, http.StatusMethodNotAllowed, d.do(http.MethodPost, "/v1/runs/x/events", jsonHeader(), `{}`).status)
}

// withKeys gives two tenants a key each.
func withKeys(t *testing.T) *api {
	t.Helper()
	return setupWith(t, timing(), func(c *config.Config) {
		c.Tenants["acme"] = config.Tenant{}
		c.API.Keys = map[string]config.APIKey{
			"ann": {Secret: secretFile(t, "ann-key"), User: "ann"},
			"bob": {Secret: secretFile(t, "bob-key"), User: "bob", Tenant: "acme"},
		}
	})
}

func TestAuth_KeysStandForTenantAndUser(t *testing.T) {
	t.Parallel()
	d := withKeys(t)
	for name, value := range map[string]string{
		"none": "", "wrong key": "Bearer wrong", "prefix": "Bearer ann-ke", "empty": "Bearer ", "other scheme": "Basic ann-key", "no scheme": "ann-key",
	} {
		for _, path := range []string{"/v1/sessions/s", "/v1/runs/x", "/v1/runs/x/events"} {
			a := d.get(path, "Authorization", value)
			require.Equal(t, http.StatusUnauthorized, a.status, name)
			require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
			require.Equal(t, "authentication_error", a.problem(t).Type)
			require.Equal(t, "Authorization", a.problem(t).Param)
		}
		require.Equal(t, http.StatusUnauthorized, d.post(`{"text":"x"}`, "Authorization", value).status, name)
	}
	require.Zero(t, d.Stored(t))

	d.say("x", "Authorization", "Bearer ann-key")
	d.say("x", "Authorization", "bearer bob-key")
	ann, err := event.Decode(d.Entry(t, 1).Data)
	require.NoError(t, err)
	bob, err := event.Decode(d.Entry(t, 2).Data)
	require.NoError(t, err)
	require.Equal(t, []string{"default", "ann", "acme", "bob"}, []string{ann.Tenant, ann.Source.UserID, bob.Tenant, bob.Source.UserID})
	require.NotEqual(t, ann.SKey, bob.SKey)
}

func TestAuth_WithoutKeysOnlyThisMachineUnderItsOwnName(t *testing.T) {
	t.Parallel()
	d := setup(t)
	for host, want := range map[string]int{
		"localhost": 404, "localhost:8080": 404, "127.0.0.1": 404, "[::1]:80": 404, "[::1]": 404, "evil.example": 401, "evil.example:8080": 401, "10.0.0.1": 401,
	} {
		require.Equal(t, want, d.get("/v1/sessions/s", "Host", host).status, host)
	}
}

func TestNew_RefusesAnUnsafeConfiguration(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t).Backends()
	cfg := config.Default()
	cfg.API.Addr = "0.0.0.0:0"
	_, err := app.New(cfg, b)
	require.EqualError(t, err, "api.keys: at least one is needed unless api.addr 0.0.0.0:0 is a loopback address")

	cfg.API.Keys = map[string]config.APIKey{
		"a": {Secret: secretFile(t, "same-secret")}, "b": {Secret: secretFile(t, "same-secret")}, "c": {},
		"d": {Secret: mustSecret(t, "file:/nonexistent")},
	}
	_, err = app.New(cfg, b)
	require.EqualError(t, err, "api.keys.b.secret: is that of api.keys.a too\napi.keys.c.secret: must not be empty\n"+
		"api.keys.d.secret: secret file:/nonexistent: open /nonexistent: no such file or directory")
	require.NotContains(t, err.Error(), "same-secret")

	cfg = config.Default()
	cfg.API.Profile = "nobody"
	_, err = app.New(cfg, b)
	require.EqualError(t, err, `api.profile: "nobody" is not in profiles`)
}

func mustSecret(t *testing.T, ref string) config.Secret {
	t.Helper()
	s, err := config.NewSecret(ref)
	require.NoError(t, err)
	return s
}

func TestApp_IsNotReadyWithoutTheBroker(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	a, err := app.New(config.Default(), env.Backends())
	require.NoError(t, err)
	checks := a.Checks()
	require.Equal(t, []string{"nats", "postgres"}, []string{checks[0].Name, checks[1].Name})
	for _, c := range checks {
		require.False(t, c.Optional)
		require.NoError(t, c.Ready(t.Context()))
	}
	require.NoError(t, env.Server.Shutdown())
	await.True(t, 10*time.Second, func() bool { return checks[0].Ready(t.Context()) != nil })
	require.NoError(t, a.Stop(t.Context()), "stop before start")
}
