package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// race is a few sessions under several workers that all want every run, while messages come in and somebody takes runs
// over from workers that are alive.
type race struct {
	store store.Store

	mu sync.Mutex
	// kept are the checkpoints that were acknowledged, lost those that were fenced, by owner.
	kept, lost map[string]bool
	finished   map[uuid.UUID]int
	fenced     int
}

const (
	raceSessions = 4
	raceMessages = 25
	raceWorkers  = 4
)

// recordWrites keeps what every statement has committed about a session, in the order of the commits: a writer holds the
// row from the write to the commit.
const recordWrites = `
create table audit(n bigint generated always as identity, skey text, gen bigint, owner text);
create function note() returns trigger language plpgsql as $$ begin
	insert into audit(skey, gen, owner) values (new.skey, new.gen, new.owner);
	return null;
end $$;
create trigger note after insert or update on sessions for each row execute function note()`

// requireInvariants holds what was written to I3, I4, I5 and I7 of docs/architecture.md.
func requireInvariants(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	require.Zero(t, scan[int](t, conn, `select count(*) from (
		select gen, lag(gen, 1, 0::bigint) over (partition by skey order by n) as before from audit
	) x where gen < before`), "generations of committed writes never fall")
	require.Zero(t, scan[int](t, conn, `select count(*) from (
		select from audit where owner is not null group by skey, gen having count(distinct owner) > 1
	) x`), "a generation has one owner")
	require.Zero(t, scan[int](t, conn, `select count(*) from (
		select from_seq, lag(to_seq, 1, 0) over (partition by skey order by first_gen) as before from runs
		where state in ('done', 'cancelled', 'failed', 'dead')
	) x where from_seq <> before + 1`), "ranges of final runs tile the inbox")
	require.Zero(t, scan[int](t, conn, `select count(*) from (
		select out_seq, row_number() over (partition by skey order by out_seq) as n from outbox
	) x where out_seq <> n`), "out_seq has no gaps")
	require.Zero(t, scan[int](t, conn, `select count(*) from outbox o join sessions s using (skey)
		where o.out_seq > s.out_seq or o.state = 'pending' and o.out_seq <= s.out_sent`), "no position is ahead of its rows")
	require.Zero(t, scan[int](t, conn, `select count(*) from sessions s left join runs r using (run_id)
		where s.run_id is not null and r.state is distinct from case s.state when 'paused' then 'waiting' else s.state end`),
		"a run is what its session says")
}

func TestStore_FenceHoldsAgainstRacingWorkers(t *testing.T) {
	t.Parallel()
	url := database(t)
	conn := connect(t, url)
	exec(t, conn, recordWrites)
	r := &race{store: open(t, url), kept: map[string]bool{}, lost: map[string]bool{}, finished: map[uuid.UUID]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, raceSessions+raceWorkers+1)
	for i := range raceSessions {
		wg.Go(func() { errs <- r.admit(ctx, fmt.Sprint("chat", i)) })
	}
	working, stop := context.WithCancel(ctx)
	for i := range raceWorkers {
		wg.Go(func() { errs <- r.work(working, fmt.Sprint("worker", i)) })
	}
	wg.Go(func() { errs <- r.takeOver(working) })

	await.True(t, 2*time.Minute, func() bool {
		return scan[int](t, conn, `select coalesce(sum(done_seq), 0)::int from sessions`) == raceSessions*raceMessages
	}, "every message is answered")
	stop()
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	r.check(t, conn)
}

// admit admits the messages of one chat one by one.
func (r *race) admit(ctx context.Context, chat string) error {
	for n := range raceMessages {
		_, err := r.store.Admit(ctx, store.Admission{Messages: []store.AdmitMessage{message(chat, fmt.Sprint("m", n))}})
		if err != nil {
			return err
		}
	}
	return nil
}

// work claims whatever is queued until ctx ends.
func (r *race) work(ctx context.Context, id string) error {
	for n := 0; ctx.Err() == nil; n++ {
		queued, _, err := r.store.QueuedRuns(ctx, allPartitions(), 0, "", raceSessions)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		var reqs []store.ClaimRequest
		for _, q := range queued {
			owner := fmt.Sprintf("%s/%d-%s", id, n, q.SKey)
			reqs = append(reqs, store.ClaimRequest{Fence: store.Fence{SKey: q.SKey, Gen: q.Gen, RunID: q.RunID, Owner: owner}})
		}
		claimed, err := r.store.Claim(ctx, reqs)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		if err := r.run(ctx, claimed); err != nil {
			return unlessEnded(ctx, err)
		}
	}
	return nil
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// run stores one message per claim and finishes with the oldest row.
func (r *race) run(ctx context.Context, claimed []store.Claimed) error {
	if len(claimed) == 0 {
		return nil
	}
	cps := make([]store.Checkpoint, len(claimed))
	fins := make([]store.Finish, len(claimed))
	for i, c := range claimed {
		owner, err := json.Marshal(c.Owner)
		if err != nil {
			return err
		}
		cps[i] = store.Checkpoint{Fence: c.Fence, RunGen: c.FirstGen, Messages: said(c.Attempts, string(owner))}
		fins[i] = finish(c, c.Inbox[0].Seq, reply())
	}
	results, err := r.store.Checkpoint(ctx, cps)
	if err != nil {
		return err
	}
	finished, err := r.store.Finish(ctx, fins)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range claimed {
		if results[i].Err == nil {
			r.kept[c.Owner] = true
		} else {
			r.lost[c.Owner] = true
		}
		if finished[i].Outcome == store.Finished {
			r.finished[c.RunID]++
		} else {
			r.fenced++
		}
	}
	return nil
}

// takeOver is T6 on running sessions, whose workers are alive.
func (r *race) takeOver(ctx context.Context) error {
	for ctx.Err() == nil {
		runs, _, err := r.store.RunningRuns(ctx, allPartitions(), "", raceSessions)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		for _, run := range runs {
			_, err := r.store.Takeover(ctx, store.Takeover{SKey: run.SKey, Gen: run.Gen, Owner: run.Owner})
			if err != nil && !errors.Is(err, store.ErrFenced) {
				return unlessEnded(ctx, err)
			}
		}
	}
	return nil
}

func (r *race) check(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	require.NotZero(t, r.fenced, "the race took place")
	stored := map[string]bool{}
	for _, m := range collect[struct{ Owner string }](t, conn, `select content #>> '{}' from messages`) {
		stored[m.Owner] = true
	}
	for owner := range r.kept {
		require.True(t, stored[owner], "acknowledged checkpoint of %s is gone", owner)
	}
	for owner := range r.lost {
		require.False(t, stored[owner], "fenced checkpoint of %s was stored", owner)
	}
	for run, n := range r.finished {
		require.Equal(t, 1, n, "run %s finished more than once", run)
	}
	require.Equal(t, raceSessions*raceMessages, scan[int](t, conn, `select count(*) from runs where state = 'done'`))
	require.Zero(t, scan[int](t, conn, `select count(*) from (
		select count(*) over (partition by run_id) as replies from outbox
	) x where replies <> 1`), "one reply per run")
	requireInvariants(t, conn)
}
