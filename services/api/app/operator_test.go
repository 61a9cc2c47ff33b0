package app_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

func (d *api) operate(method, path, body string) answer {
	d.t.Helper()
	return d.do(method, "/v1/operator/"+path, jsonHeader(), body)
}

func TestOperator_PausesAndResumesASession(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	list := d.operate(http.MethodGet, "sessions?state=running", "")
	require.Equal(t, http.StatusOK, list.status, list.members)
	require.Len(t, list.members["sessions"], 1)
	require.Empty(t, d.operate(http.MethodGet, "sessions?state=idle", "").members["sessions"])

	signals := make(chan bus.Msg, 1)
	sub, err := d.Bus.Listen(bus.ControlSubject(r.skey), signals)
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Close()) }()
	a := d.operate(http.MethodPost, "sessions/"+r.skey+"/pause", "")
	require.Equal(t, http.StatusOK, a.status, a.members)
	require.Equal(t, "paused", a.State)
	require.Equal(t, r.id.String(), *a.RunID)
	var c runv1.Control
	require.NoError(t, proto.Unmarshal((<-signals).Data, &c))
	require.Equal(t, runv1.ControlKind_CONTROL_KIND_FENCED, c.GetKind())
	s, err := d.Store.Session(t.Context(), r.skey)
	require.NoError(t, err)
	require.Equal(t, s.Gen, c.GetGen())

	a = d.operate(http.MethodPost, "sessions/"+r.skey+"/resume", "")
	require.Equal(t, http.StatusOK, a.status, a.members)
	require.Equal(t, "queued", a.State)
	require.Equal(t, r.id.String(), *a.RunID, "the run that was interrupted goes on")
	require.Equal(t, "queued", d.operate(http.MethodGet, "sessions/"+r.skey, "").State)
	require.Equal(t, http.StatusNotFound, d.operate(http.MethodPost, "sessions/none/pause", "").status)
	require.Equal(t, "state", d.operate(http.MethodGet, "sessions?state=busy", "").problem(t).Param)
	require.Equal(t, "limit", d.operate(http.MethodGet, "sessions?limit=0", "").problem(t).Param)
}

func TestOperator_KillsARunAndReplaysItsMessages(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("do it")
	r := d.admit(1, "").begin()
	a := d.operate(http.MethodPost, "runs/"+r.id.String()+"/kill", "")
	require.Equal(t, http.StatusOK, a.status, a.members)
	run, err := d.Store.Run(t.Context(), r.id)
	require.NoError(t, err)
	require.Equal(t, store.RunDead, run.State)
	require.Equal(t, "killed by an operator", run.Error)
	require.Equal(t, "run_ended", d.operate(http.MethodPost, "runs/"+r.id.String()+"/kill", "").problem(t).Code)

	list := d.operate(http.MethodGet, "dead-letters?kind=run&open=true", "")
	require.Equal(t, http.StatusOK, list.status, list.members)
	require.Len(t, list.members["dead_letters"], 1)
	id := list.members["dead_letters"].([]any)[0].(map[string]any)["id"].(string)
	shown := d.operate(http.MethodGet, "dead-letters/"+id, "")
	require.Equal(t, "killed by an operator", shown.members["reason"])
	require.NotNil(t, shown.members["payload"])

	for n := 1; n <= 2; n++ {
		a = d.operate(http.MethodPost, "dead-letters/"+id+"/replay", "")
		require.Equal(t, http.StatusAccepted, a.status, a.members)
		require.EqualValues(t, n, a.members["replay"])
		again := d.received(1 + n)
		require.Equal(t, "do it", again.Text)
		require.Equal(t, r.skey, again.SKey)
		require.Equal(t, []any{again.UID}, a.members["msg_uids"])
		require.NotEqual(t, d.received(1).UID, again.UID)
	}
	require.Empty(t, d.operate(http.MethodGet, "dead-letters?open=true", "").members["dead_letters"])
	require.Equal(t, "kind", d.operate(http.MethodGet, "dead-letters?kind=x", "").problem(t).Param)
	require.Equal(t, http.StatusNotFound, d.operate(http.MethodPost, "dead-letters/"+uuid.NewString()+"/replay", "").status)
}

func TestOperator_ReplaysWhatCouldNotBeAdmittedIfItCanBeRead(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	m := d.received(1)
	data, err := event.Encode(m)
	require.NoError(t, err)
	readable, broken := letterOf(t, data), letterOf(t, []byte("no message"))
	_, err = d.Store.Admit(t.Context(), store.Admission{Dead: []store.DeadLetter{readable, broken}})
	require.NoError(t, err)
	a := d.operate(http.MethodPost, "dead-letters/"+readable.ID.String()+"/replay", "")
	require.Equal(t, http.StatusAccepted, a.status, a.members)
	require.Equal(t, m.UID+"#r1", d.received(2).UID)
	a = d.operate(http.MethodPost, "dead-letters/"+broken.ID.String()+"/replay", "")
	require.Equal(t, http.StatusConflict, a.status, a.members)
	require.Equal(t, "not_replayable", a.problem(t).Code)
	letter, err := d.Store.DeadLetter(t.Context(), broken.ID)
	require.NoError(t, err)
	require.Zero(t, letter.Replays)
}

func letterOf(t *testing.T, data []byte) store.DeadLetter {
	t.Helper()
	payload, err := json.Marshal(map[string]any{"subject": "ing", "data": data})
	require.NoError(t, err)
	return store.DeadLetter{
		ID: uuid.Must(uuid.NewV7()), Kind: store.DeadKindIngress, Ref: "r", Reason: "tried", Payload: payload,
	}
}

func TestOperator_ReplaysAReplyBehindTheOthers(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	payload, err := json.Marshal(store.DeadDelivery{
		SKey: r.skey, OutSeq: 7, DKey: "d", Platform: "webhook", Target: json.RawMessage(`{}`), Parts: json.RawMessage(`[]`),
	})
	require.NoError(t, err)
	letter := store.DeadLetter{ID: uuid.Must(uuid.NewV7()), Kind: store.DeadKindDelivery, Ref: "r", Reason: "refused", Payload: payload}
	_, err = d.Store.Admit(t.Context(), store.Admission{Dead: []store.DeadLetter{letter}})
	require.NoError(t, err)
	a := d.operate(http.MethodPost, "dead-letters/"+letter.ID.String()+"/replay", "")
	require.Equal(t, http.StatusAccepted, a.status, a.members)
	require.EqualValues(t, 1, a.members["out_seq"])
	due, err := d.Store.ClaimDeliveries(t.Context(), "s/1", []store.DeliveryClaim{{SKey: r.skey, OutSeq: 1}})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, "d#r1", due[0].DKey)
}

func TestOperator_DrainsAWorker(t *testing.T) {
	t.Parallel()
	d := setup(t)
	require.NoError(t, d.Store.Heartbeat(t.Context(), store.WorkerBeat{WorkerID: "w1", Boot: uuid.New(), Slots: 4, Used: 1}))
	list := d.operate(http.MethodGet, "workers", "")
	require.Equal(t, http.StatusOK, list.status, list.members)
	require.Equal(t, "w1", list.members["workers"].([]any)[0].(map[string]any)["id"])

	require.Equal(t, http.StatusNotFound, d.operate(http.MethodPost, "workers/w1/drain", "").status, "nobody listens")
	commands := make(chan bus.Msg, 1)
	sub, err := d.Bus.Listen(bus.WorkerSubject("w1"), commands)
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Close()) }()
	done := make(chan error, 1)
	go func() {
		m := <-commands
		var c runv1.WorkerCommand
		if err := proto.Unmarshal(m.Data, &c); err != nil || c.GetKind() != runv1.WorkerCommandKind_WORKER_COMMAND_KIND_DRAIN {
			done <- err
			return
		}
		done <- d.Bus.Notify(t.Context(), bus.Msg{Subject: m.Reply, Data: []byte("ok")})
	}()
	a := d.operate(http.MethodPost, "workers/w1/drain", "")
	require.NoError(t, <-done)
	require.Equal(t, http.StatusAccepted, a.status, a.members)
	require.Equal(t, http.StatusBadRequest, d.operate(http.MethodPost, "workers/W%20x/drain", "").status)
}

func TestOperator_NeedsTheRoleAdmin(t *testing.T) {
	t.Parallel()
	d := setupWith(t, timing(), func(c *config.Config) {
		c.API.Keys = map[string]config.APIKey{
			"user":  {Secret: secretFile(t, "one"), User: "u"},
			"admin": {Secret: secretFile(t, "two"), User: "a", Roles: []string{"admin"}},
		}
	})
	get := func(key string) answer {
		return d.do(http.MethodGet, "/v1/operator/workers", jsonHeader("Authorization", "Bearer "+key), "")
	}
	require.Equal(t, http.StatusForbidden, get("one").status)
	require.Equal(t, http.StatusOK, get("two").status)
	require.Equal(t, http.StatusUnauthorized, get("three").status)
}
