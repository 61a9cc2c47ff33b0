package pgstore_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// message is a plain message of the session that is named.
func message(chat, uid string) store.AdmitMessage {
	key := "agent:main:test:dm:" + chat
	return store.AdmitMessage{
		SKey: session.SKey("acme", key), Tenant: "acme", SessionKey: key, AgentID: "helper", UID: uid, Kind: store.KindUser,
		Body: []byte(`{"text":"hello"}`), WantsRun: true, SessionID: uuid.New(), RunID: uuid.New(),
	}
}

// reply is one that somebody has to send.
func reply() store.NewReply {
	return store.NewReply{Platform: "test", Target: []byte(`{}`), Parts: []byte(`[]`)}
}

// finish ends the run for the rows up to to.
func finish(c store.Claimed, to int64, replies ...store.NewReply) store.Finish {
	return store.Finish{
		Fence: c.Fence, RunGen: c.FirstGen, From: c.DoneSeq + 1, To: to, State: store.RunDone, Replies: replies,
		NextRunID: uuid.New(),
	}
}

// claim claims what a message has queued.
func claim(t *testing.T, s store.Store, skey string, a store.Admitted, owner string) store.Claimed {
	t.Helper()
	got, err := s.Claim(t.Context(), []store.ClaimRequest{
		{Fence: store.Fence{SKey: skey, Gen: a.Gen, RunID: a.RunID, Owner: owner}},
	})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

// A trigger notes under which setting each statement really ran.
const recordSettings = `
create table seen(n int generated always as identity, name text, value text);
create function note() returns trigger language plpgsql as $$ begin
	insert into seen(name, value) values (tg_table_name || ' ' || lower(tg_op), current_setting('synchronous_commit'));
	return null;
end $$;
create trigger note after insert or update on sessions for each statement execute function note();
create trigger note after insert or update on outbox for each statement execute function note();
create trigger note after insert on aliases for each statement execute function note();`

func TestStore_OnlyAdmitAndClaimsDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	url := database(t)
	conn := connect(t, url)
	exec(t, conn, recordSettings)
	s := open(t, url)
	m := message("a", "m1")
	ran := func(doing string) []string {
		rows := collect[struct{ Name, Value string }](t, conn, `select distinct name, value from seen order by 1`)
		exec(t, conn, `delete from seen`)
		out := []string{doing}
		for _, r := range rows {
			if len(out) == 1 || out[1] != r.Value {
				out = append(out, r.Value)
			}
		}
		return out
	}
	ran("the warm-up")

	admitted, err := s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
	require.NoError(t, err)
	require.Equal(t, []string{"admit", "off"}, ran("admit"))

	run := claim(t, s, m.SKey, admitted[0], "w/1")
	require.Equal(t, []string{"claim", "off"}, ran("claim"))

	_, err = s.Checkpoint(t.Context(), []store.Checkpoint{{Fence: run.Fence, RunGen: run.FirstGen}})
	require.NoError(t, err)
	require.Equal(t, []string{"checkpoint", "on"}, ran("checkpoint"))

	_, err = s.Finish(t.Context(), []store.Finish{finish(run, 1, reply())})
	require.NoError(t, err)
	require.Equal(t, []string{"finish", "on"}, ran("finish"))

	got, err := s.ClaimDeliveries(t.Context(), "e/1", []store.DeliveryClaim{{SKey: m.SKey, OutSeq: 1}})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, []string{"claim delivery", "off"}, ran("claim delivery"))

	_, err = s.MarkDeliveries(t.Context(), []store.Mark{{SKey: m.SKey, OutSeq: 1, State: store.OutSent}})
	require.NoError(t, err)
	require.Equal(t, []string{"mark", "on"}, ran("mark"))

	again := message("a", "m2")
	admitted, err = s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{again}})
	require.NoError(t, err)
	run = claim(t, s, m.SKey, admitted[0], "w/1")
	ran("another turn")
	given, err := s.Handover(t.Context(), []store.Checkpoint{{Fence: run.Fence, RunGen: run.FirstGen}})
	require.NoError(t, err)
	require.Equal(t, []string{"hand over", "on"}, ran("hand over"))

	stop := message("a", "m3")
	stop.WantsRun, stop.Stop = false, true
	_, err = s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{stop}})
	require.NoError(t, err)
	ran("stop")
	ended, err := s.StopQueued(t.Context(), store.QueuedStop{SKey: m.SKey, Gen: given[0].Gen, RunID: run.RunID, From: 2, To: 3})
	require.NoError(t, err)
	require.Equal(t, store.Finished, ended.Outcome)
	require.Equal(t, []string{"end queued run", "on"}, ran("end queued run"))

	reset := message("a", "m4")
	reset.WantsRun, reset.Reset = false, true
	_, err = s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{reset}})
	require.NoError(t, err)
	require.Equal(t, []string{"reset", "off"}, ran("reset"))

	_, err = s.LearnAlias(t.Context(), store.Address{Tenant: "acme", ID: "new"}, "old")
	require.NoError(t, err)
	require.Equal(t, []string{"learn alias", "on"}, ran("learn alias"))
}

func TestStore_ConnectionsHaveTheSettingsOfTheEngine(t *testing.T) {
	t.Parallel()
	url := database(t)
	conn := connect(t, url)
	// A role that says otherwise is overruled.
	exec(t, conn, `do $$ begin execute format('alter database %I set synchronous_commit = off', current_database());
		execute format('alter database %I set default_transaction_isolation = serializable', current_database()); end $$`)
	exec(t, conn, `create table seen(name text, value text);
		create function note() returns trigger language plpgsql as $$ begin
			insert into seen select name, setting from pg_settings;
			return null;
		end $$;
		create trigger note after update on sessions for each statement execute function note()`)
	s := open(t, url)
	exec(t, conn, `delete from seen`)
	m := message("a", "m1")
	admitted, err := s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
	require.NoError(t, err)
	run := claim(t, s, m.SKey, admitted[0], "w/1")
	exec(t, conn, `delete from seen`)
	_, err = s.Checkpoint(t.Context(), []store.Checkpoint{{Fence: run.Fence, RunGen: run.FirstGen}})
	require.NoError(t, err)
	for name, want := range map[string]string{
		"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off", "statement_timeout": "5000",
		"idle_in_transaction_session_timeout": "10000", "tcp_user_timeout": "5000", "synchronous_commit": "on",
		"transaction_isolation": "read committed",
	} {
		require.Equal(t, want, scan[string](t, conn, `select value from seen where name = $1`, name), name)
	}
}
