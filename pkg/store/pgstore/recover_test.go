package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// stolen is what may happen to a session while a write of its run waits for the row.
func stolen() map[string]string {
	return map[string]string{
		"takeover": `update sessions set gen = gen + 1, owner = null, state = 'queued', attempt = attempt + 1`,
		"reclaim":  `update sessions set gen = gen + 1, owner = 'w/2'`,
		"pause":    `update sessions set gen = gen + 1, owner = null, state = 'paused'`,
		"new":      `update sessions set gen = gen + 1, owner = null, run_id = null, state = 'idle'`,
		"suspend":  `update sessions set gen = gen + 1, owner = null, state = 'waiting', wait_kind = 'approval'`,
	}
}

// write is a write of a run and how it tells that it was fenced.
type write func(ctx context.Context, s store.Store, c store.Claimed) error

// errWritten: the write was not fenced.
var errWritten = errors.New("written")

func outcome(r store.FinishResult, err error) error {
	switch {
	case err != nil:
		return err
	case r.Outcome == store.FinishFenced:
		return store.ErrFenced
	default:
		return errWritten
	}
}

func firstError[T any](got []T, err error, of func(T) error) error {
	if err == nil {
		err = of(got[0])
	}
	if err == nil {
		err = errWritten
	}
	return err
}

func checkpoint(c store.Claimed) store.Checkpoint {
	r := reply()
	r.DKey = "k"
	return store.Checkpoint{
		Fence: c.Fence, RunGen: c.FirstGen, Messages: said(1, `"text"`), Taken: []int64{1}, Replies: []store.NewReply{r},
		ToolCalls: []store.ToolCall{{CallID: "c1", Name: "tool", Effect: "unsafe", State: store.ToolIntent}},
	}
}

func giveUp(c store.Claimed) store.GiveUp {
	return store.GiveUp{
		SKey: c.SKey, Gen: c.Gen, Owner: c.Owner, RunID: c.RunID, RunGen: c.FirstGen, From: c.DoneSeq + 1, To: c.DoneSeq + 1,
		Messages: said(1, `"text"`), Replies: []store.NewReply{reply()}, NextRunID: uuid.New(), Error: "lost",
		Calls:  []store.ToolCall{{CallID: "c1", Name: "tool", Effect: "unsafe", State: store.ToolUnknown}},
		Letter: store.DeadLetter{ID: uuid.New(), Kind: store.DeadKindRun, Ref: c.RunID.String(), Reason: "lost", Payload: []byte(`{}`)},
	}
}

// writes are all that a worker, or a sweeper that has read the same row, writes about a running run.
func writes() map[string]write {
	return map[string]write{
		"checkpoint": func(ctx context.Context, s store.Store, c store.Claimed) error {
			got, err := s.Checkpoint(ctx, []store.Checkpoint{checkpoint(c)})
			return firstError(got, err, func(r store.CheckpointResult) error { return r.Err })
		},
		"hand over": func(ctx context.Context, s store.Store, c store.Claimed) error {
			got, err := s.Handover(ctx, []store.Checkpoint{checkpoint(c)})
			return firstError(got, err, func(r store.HandoverResult) error { return r.Err })
		},
		"suspend": func(ctx context.Context, s store.Store, c store.Claimed) error {
			got, err := s.Suspend(ctx, []store.Suspension{{Checkpoint: checkpoint(c), Seen: 1, Kind: store.WaitApproval}})
			return firstError(got, err, func(r store.SuspendResult) error { return r.Err })
		},
		"finish": func(ctx context.Context, s store.Store, c store.Claimed) error {
			got, err := s.Finish(ctx, []store.Finish{finish(c, 1, reply())})
			if err != nil {
				return err
			}
			return outcome(got[0], nil)
		},
		"give up": func(ctx context.Context, s store.Store, c store.Claimed) error {
			return outcome(s.GiveUp(ctx, giveUp(c)))
		},
		"end stopped": func(ctx context.Context, s store.Store, c store.Claimed) error {
			return outcome(s.EndStopped(ctx, store.QueuedStop{
				SKey: c.SKey, Gen: c.Gen, RunID: c.RunID, From: 1, To: 1, Replies: []store.NewReply{reply()}, NextRunID: uuid.New(),
			}))
		},
		"take over": func(ctx context.Context, s store.Store, c store.Claimed) error {
			_, err := s.Takeover(ctx, store.Takeover{SKey: c.SKey, Gen: c.Gen, Owner: c.Owner, StallKey: "call"})
			if err == nil {
				err = errWritten
			}
			return err
		},
		"reclaim": func(ctx context.Context, s store.Store, c store.Claimed) error {
			got, err := s.Reclaim(ctx, []store.Reclaim{{Fence: c.Fence, Fresh: "w/3"}})
			return firstError(got, err, func(r store.Reclaimed) error { return r.Err })
		},
	}
}

// contents counts the rows that a write could have added, and notes the session.
const contents = `select format('%s %s %s %s %s %s %s', (select count(*) from messages), (select count(*) from tool_calls),
	(select count(*) from outbox), (select count(*) from dead_letters), (select count(*) from inbox where run_id is not null),
	(select string_agg(concat_ws(',', state, owner, attempts), ';' order by run_id) from runs),
	(select concat_ws(',', state, gen, run_id, owner, done_seq, out_seq, stall) from sessions))`

func TestStore_WriteThatWaitedForAThiefWritesNothing(t *testing.T) {
	t.Parallel()
	for thief, sql := range stolen() {
		t.Run(thief, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			s, holder, conn := open(t, url), connect(t, url), connect(t, url)
			for name, send := range writes() {
				exec(t, conn, `delete from sessions; delete from inbox; delete from runs`)
				c := claim(t, s, message("a", "m1").SKey, admit(t, s, message("a", "m1"))[0], "w/1")
				exec(t, conn, `update sessions set stop_run = case when $1 then run_id end`, name == "end stopped")
				_, err := blocked(t, holder, conn, sql, func() (struct{}, error) { return struct{}{}, send(t.Context(), s, c) })
				require.ErrorIs(t, err, store.ErrFenced, name)
				require.Regexp(t, `^0 0 0 0 0 running,w/1,1 .*,0,0,0$`, scan[string](t, conn, contents), name)
			}
		})
	}
}

// A worker that claims while the run is being given up keeps it.
func TestGiveUp_WaitsForTheClaim(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	a := admit(t, s, message("a", "m1"))[0]
	queued := store.Claimed{Fence: store.Fence{SKey: message("a", "").SKey, Gen: a.Gen, RunID: a.RunID}, FirstGen: 1}
	got, err := blocked(t, connect(t, url), conn, `update sessions set state = 'running', owner = 'w/1'`, func() (store.FinishResult, error) {
		return s.GiveUp(t.Context(), giveUp(queued))
	})
	require.NoError(t, err)
	require.Equal(t, store.FinishResult{Outcome: store.FinishFenced}, got)
	require.Regexp(t, `^0 0 0 0 0 queued,0 running,1,`, scan[string](t, conn, contents))
}

// A claim that waits for the run to be given up gets nothing.
func TestClaim_WaitsForTheRunThatIsGivenUp(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	a := admit(t, s, message("a", "m1"))[0]
	got, err := blocked(t, connect(t, url), conn, `update sessions set state = 'idle', run_id = null, gen = gen + 1, done_seq = 1`,
		func() ([]store.Claimed, error) {
			return s.Claim(t.Context(), []store.ClaimRequest{
				{Fence: store.Fence{SKey: message("a", "").SKey, Gen: a.Gen, RunID: a.RunID, Owner: "w/1"}},
			})
		})
	require.NoError(t, err)
	require.Empty(t, got)
	require.Regexp(t, `^0 0 0 0 0 queued,0 idle,2,1,0,0$`, scan[string](t, conn, contents))
}

// The answer that comes while the run is being suspended has to wake it.
func TestSuspend_SeesTheAnswerThatItWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  string
		want store.SessionState
	}{
		"an answer wakes":          {`update sessions set last_seq = 2, wake_seq = 2`, store.Queued},
		"another message does not": {`update sessions set last_seq = 2, want_seq = 2`, store.Waiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			s, conn := open(t, url), connect(t, url)
			run := claim(t, s, message("a", "m1").SKey, admit(t, s, message("a", "m1"))[0], "w/1")
			got, err := blocked(t, connect(t, url), conn, c.sql, func() ([]store.SuspendResult, error) {
				return s.Suspend(t.Context(), []store.Suspension{{Checkpoint: checkpoint(run), Seen: 1, Kind: store.WaitApproval}})
			})
			require.NoError(t, err)
			require.Equal(t, []store.SuspendResult{{Gen: run.Gen + 1, State: c.want, FirstOut: 1}}, got)
		})
	}
}

func TestPause_TakesTheRunFromWhoeverGotIt(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"claim":    `update sessions set state = 'running', owner = 'w/1'`,
		"takeover": `update sessions set gen = gen + 1`,
		"new":      `update sessions set gen = gen + 1, run_id = null, state = 'idle'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			s, conn := open(t, url), connect(t, url)
			admit(t, s, message("a", "m1"))
			got, err := blocked(t, connect(t, url), conn, sql, func() (store.Session, error) {
				return s.Pause(t.Context(), message("a", "").SKey)
			})
			require.NoError(t, err)
			require.Equal(t, []any{store.Paused, ""}, []any{got.State, got.Owner})
			require.Equal(t, scan[int64](t, conn, `select gen from sessions`), got.Gen)
			require.Equal(t, name != "new", scan[bool](t, conn, `select state = 'waiting' from runs`), "the run that is current")
		})
	}
}

// A finish that commits between the snapshot of the statement and its lock raises out_seq over a row that the statement
// does not see. A position that passed it would leave the reply unsent for ever.
func TestSettleGaps_DoesNotPassARowThatItCannotSee(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	run := claim(t, s, message("a", "m1").SKey, admit(t, s, message("a", "m1"))[0], "w/1")
	_, err := s.Finish(t.Context(), []store.Finish{finish(run, 1, reply())})
	require.NoError(t, err)
	exec(t, conn, `update outbox set state = 'sent'`)
	exec(t, conn, `create function gate() returns bool language plpgsql as
		$$ begin perform pg_advisory_xact_lock_shared(7); return true; end $$`)
	exec(t, conn, `alter table outbox rename to outbox_rows`)
	exec(t, conn, `create view outbox as select * from outbox_rows where gate()`) // holds a statement that reads it, after its snapshot
	got, err := blocked(t, connect(t, url), conn, `do $$ begin
			perform pg_advisory_xact_lock(7);
			insert into outbox_rows (skey, out_seq, dkey, platform) select skey, 2, 'k', 'test' from sessions;
			update sessions set out_seq = 2;
		end $$`, func() ([]store.Doorbell, error) { return s.SettleGaps(t.Context(), allPartitions(), 10) })
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, []int64{1, 2}, scan[[]int64](t, conn, `select array[out_sent, out_seq] from sessions`))
}

func TestStaleStops_FindsARunThatWaitsAlthoughItIsStopped(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	run := claim(t, s, message("a", "m1").SKey, admit(t, s, message("a", "m1"))[0], "w/1")
	stop := control("a", "m2", func(m *store.AdmitMessage) { m.Kind, m.Stop, m.Wakes = store.KindStop, true, true })
	admit(t, s, stop)
	got, err := s.Suspend(t.Context(), []store.Suspension{{Checkpoint: store.Checkpoint{Fence: run.Fence}, Seen: 2, Kind: store.WaitApproval}})
	require.NoError(t, err)
	require.Equal(t, store.Waiting, got[0].State)
	exec(t, conn, `update sessions set stop_at = stop_at - interval '1 min'`)
	stale, err := s.StaleStops(t.Context(), allPartitions(), 10*time.Second, 10)
	require.NoError(t, err)
	require.Equal(t, []store.StaleStop{{SKey: run.SKey, Gen: got[0].Gen, RunID: run.RunID, State: store.Waiting}}, stale)
}

func TestEndFrozen_EndsTransactionsThatWaitForTheirClient(t *testing.T) {
	t.Parallel()
	for name, freeze := range map[string]func(*testing.T, *pgx.Conn){
		"idle in transaction": func(t *testing.T, conn *pgx.Conn) {
			t.Helper()
			exec(t, conn, `begin`)
			exec(t, conn, `update sessions set touched_at = now()`)
		},
		"in the middle of a pipeline": func(t *testing.T, conn *pgx.Conn) {
			t.Helper()
			p := conn.PgConn().StartPipeline(t.Context())
			p.SendQueryParams(`update sessions set touched_at = now()`, nil, nil, nil, nil)
			p.SendFlushRequest() // without the sync that would end the transaction
			require.NoError(t, p.Flush())
			_, err := p.GetResults()
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			s, conn := open(t, url), connect(t, url)
			admit(t, s, message("a", "m1"))
			victim, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(func() { _ = victim.Close(context.Background()) }) // its backend is gone
			freeze(t, victim)
			await.True(t, 30*time.Second, func() bool {
				return scan[bool](t, conn, `select exists (select from pg_stat_activity where pid = $1 and wait_event = 'ClientRead'
					and xact_start is not null)`, victim.PgConn().PID())
			})
			n, err := s.EndFrozen(t.Context(), time.Hour)
			require.NoError(t, err)
			require.Zero(t, n, "it is not old yet")
			n, err = s.EndFrozen(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			await.True(t, 30*time.Second, func() bool {
				return scan[bool](t, conn, `select not exists (select from pg_stat_activity where pid = $1)`, victim.PgConn().PID())
			})
			require.Equal(t, int64(2), admit(t, s, message("a", "m2"))[0].Seq, "the row is free")
		})
	}
}
