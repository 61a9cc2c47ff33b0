package app_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func (d *api) cancel(id string, pairs ...string) answer {
	d.t.Helper()
	return d.do(http.MethodPost, "/v1/runs/"+id+"/cancel", jsonHeader(pairs...), "")
}

func TestCancel_StopsTheRunByItsSession(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	for _, id := range []string{r.id.String(), r.message()} {
		a := d.cancel(id)
		require.Equal(t, http.StatusAccepted, a.status, a.members)
		require.Equal(t, r.id.String(), *a.RunID)
		require.Equal(t, "/v1/runs/"+r.id.String()+"/events", a.EventsURL)
	}
	require.Equal(t, 2, d.Stored(t), "the same run is stopped once")
	stop := d.received(2)
	require.Equal(t, event.KindCommand, stop.Kind)
	require.Equal(t, &event.Command{Name: "stop"}, stop.Command)
	require.Equal(t, r.skey, stop.SKey)
	require.Equal(t, session.SKey(stop.Tenant, stop.SessionKey), stop.SKey)
	require.True(t, stop.ReplyTo.Read())

	r.finish(store.RunCancelled, "half", "Stopped.")
	for _, id := range []string{r.id.String(), r.message()} {
		a := d.cancel(id)
		require.Equal(t, http.StatusConflict, a.status, a.members)
		require.Equal(t, problem{Message: "the run has ended", Type: "conflict_error", Code: "run_ended"}, a.problem(t))
	}
	require.Equal(t, 2, d.Stored(t))
}

func TestCancel_OfAWaitingMessageDoesNotStopTheRunOfAnother(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("one")
	d.say("two")
	d.say("/status")
	first, second := d.admit(1, "").begin(), d.admit(2, "")
	command := d.admit(3, "Answering.")
	a := d.cancel(second.message())
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, "message_waiting", a.problem(t).Code)
	require.Equal(t, "run_ended", d.cancel(command.message()).problem(t).Code)
	require.Equal(t, 3, d.Stored(t))
	require.Equal(t, http.StatusAccepted, d.cancel(first.message()).status)
}

func TestCancel_OfAnUnknownRunIsNotFound(t *testing.T) {
	t.Parallel()
	d := setup(t)
	require.Equal(t, http.StatusNotFound, d.cancel(uuid.NewString()).status)
	require.Equal(t, http.StatusNotFound, d.cancel("x").status)
	require.Equal(t, http.StatusNotFound, d.cancel(d.say("not admitted").MessageID).status)
	r := d.admit(1, "")
	d.store.down.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, d.cancel(r.id.String()).status)
	require.Equal(t, 1, d.Stored(t))
}

func TestPost_StopIsACommandOfTheSession(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	got := d.later("/v1/sessions/s/messages?wait=20", jsonHeader(), `{"text":"/stop all"}`)
	stop := d.received(2)
	require.Equal(t, &event.Command{Name: "stop", Args: "all"}, stop.Command)
	d.admit(1, "")
	d.admitAs(2, store.KindStop, "Stopped.")
	a := d.await(got)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "done", a.State)
	require.Equal(t, "Stopped.", a.Text)
}

func TestPost_RefusedAndSupersededAreTold(t *testing.T) {
	t.Parallel()
	for code, c := range map[string]struct {
		end         func(d *api)
		status      int
		state, text string
	}{
		"message_refused":    {func(d *api) { d.admitAs(1, store.KindRefused, "Too many messages wait.") }, 429, "failed", "Too many messages wait."},
		"message_superseded": {func(d *api) { d.supersede(1) }, 409, "cancelled", ""},
	} {
		d := setup(t)
		stream := d.stream(`{"text":"x"}`, "Idempotency-Key", "k")
		_, ok := stream.next() // accepted
		require.True(t, ok)
		got := d.later("/v1/sessions/s/messages?wait=20", jsonHeader("Idempotency-Key", "k"), `{"text":"x"}`)
		c.end(d)
		a := d.await(got)
		require.Equal(t, c.status, a.status, code)
		require.Equal(t, code, a.problem(t).Code)
		require.NotEmpty(t, a.MessageID)
		require.Equal(t, "s", a.SessionID)

		run := d.get("/v1/runs/" + a.MessageID)
		require.Equal(t, http.StatusOK, run.status)
		require.Equal(t, []string{c.state, c.text, code}, []string{run.State, run.Text, run.Code})
		e, ok := stream.next()
		require.True(t, ok)
		require.Equal(t, c.state, e.name)
		require.Contains(t, e.data, `"code":"`+code+`"`)
		_, ok = stream.next()
		require.False(t, ok)
	}
}
