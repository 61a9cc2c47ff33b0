package pgstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// running admits one message to each of n sessions and claims their runs.
func running(t *testing.T, s store.Store, n int) []store.Claimed {
	t.Helper()
	var a store.Admission
	for i := range n {
		a.Messages = append(a.Messages, message(fmt.Sprint("chat", i), "m1"))
	}
	admitted, err := s.Admit(t.Context(), a)
	require.NoError(t, err)
	out := make([]store.Claimed, n)
	for i := range out {
		out[i] = claim(t, s, a.Messages[i].SKey, admitted[i], fmt.Sprint("w/", i))
	}
	return out
}

func said(n int, content string) []store.Message {
	return []store.Message{{N: n, Role: "assistant", Content: []byte(content)}}
}

const poison = `{"text":"\u0000"}`

func TestCheckpoint_PoisonDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	s := open(t, database(t))
	runs := running(t, s, 3)
	cps := make([]store.Checkpoint, len(runs))
	for i, content := range []string{`{"n":0}`, poison, `{"n":2}`} {
		cps[i] = store.Checkpoint{Fence: runs[i].Fence, RunGen: runs[i].FirstGen, Messages: said(1, content)}
	}
	_, err := s.Checkpoint(t.Context(), cps)
	require.ErrorIs(t, err, store.ErrRejected)
	for i, want := range []int{1, 0, 1} {
		got, err := s.RunMessages(t.Context(), runs[i].RunID)
		require.NoError(t, err)
		require.Len(t, got, want, "run %d", i)
		_, err = s.Checkpoint(t.Context(), cps[i:i+1])
		require.Equal(t, want == 0, err != nil, "alone, each gets its own answer: %v", err)
	}
}

func TestHandover_PoisonDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	s := open(t, database(t))
	runs := running(t, s, 3)
	cps := make([]store.Checkpoint, len(runs))
	for i, content := range []string{`{"n":0}`, poison, `{"n":2}`} {
		cps[i] = store.Checkpoint{Fence: runs[i].Fence, RunGen: runs[i].FirstGen, Messages: said(1, content)}
	}
	_, err := s.Handover(t.Context(), cps)
	require.ErrorIs(t, err, store.ErrRejected)
	for i, want := range []store.RunState{store.RunQueued, store.RunRunning, store.RunQueued} {
		got, err := s.Run(t.Context(), runs[i].RunID)
		require.NoError(t, err)
		require.Equal(t, want, got.State, "run %d", i)
	}
}

func TestFinish_PoisonDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	s := open(t, database(t))
	runs := running(t, s, 3)
	fins := make([]store.Finish, len(runs))
	for i, content := range []string{`{"n":0}`, poison, `{"n":2}`} {
		fins[i] = finish(runs[i], 1, reply())
		fins[i].Messages = said(1, content)
	}
	_, err := s.Finish(t.Context(), fins)
	require.ErrorIs(t, err, store.ErrRejected)
	for i, want := range []store.RunState{store.RunDone, store.RunRunning, store.RunDone} {
		got, err := s.Run(t.Context(), runs[i].RunID)
		require.NoError(t, err)
		require.Equal(t, want, got.State, "run %d", i)
	}
	again, err := s.Finish(t.Context(), fins[:1])
	require.NoError(t, err)
	require.Equal(t, store.FinishResult{Outcome: store.Finished}, again[0])
}

func TestMarkDeliveries_PoisonDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	s := open(t, database(t))
	runs := running(t, s, 2)
	_, err := s.Finish(t.Context(), []store.Finish{finish(runs[0], 1, reply()), finish(runs[1], 1, reply())})
	require.NoError(t, err)
	got, err := s.MarkDeliveries(t.Context(), []store.Mark{
		{SKey: runs[0].SKey, OutSeq: 1, State: store.OutSent, PlatformIDs: []byte(`"not an array"`)},
		{SKey: runs[1].SKey, OutSeq: 1, State: store.OutSent, PlatformIDs: []byte(`["p1"]`)},
	})
	require.ErrorIs(t, err, store.ErrRejected)
	require.Equal(t, []store.Marked{{SKey: runs[1].SKey, OutSeq: 1, OutSent: 1}}, got)
}

const (
	stormSessions = 24
	stormRounds   = 60
)

// storm sends every kind of batch over the same sessions, each in an order of its own.
type storm struct {
	store store.Store
	runs  []store.Claimed
	owner atomic.Int64
}

// admit sends two messages to every session, some of them in the single form.
func (s *storm) admit(ctx context.Context, round int) error {
	var a store.Admission
	for _, i := range rand.Perm(len(s.runs)) {
		for n := range 2 {
			m := message(fmt.Sprint("chat", i), fmt.Sprint("m", round, "/", n))
			if rand.IntN(3) == 0 {
				m.Group = "album" // not plain
			}
			a.Messages = append(a.Messages, m)
		}
	}
	_, err := s.store.Admit(ctx, a)
	return err
}

// checkpoint locks all sessions, whoever owns them now.
func (s *storm) checkpoint(ctx context.Context, round int) error {
	var cps []store.Checkpoint
	for _, i := range rand.Perm(len(s.runs)) {
		r := s.runs[i]
		cps = append(cps, store.Checkpoint{Fence: r.Fence, RunGen: r.FirstGen, Messages: said(round, `{}`)})
	}
	_, err := s.store.Checkpoint(ctx, cps)
	return err
}

// turn claims what is queued, finishes it and marks the replies.
func (s *storm) turn(ctx context.Context) error {
	queued, _, err := s.store.QueuedRuns(ctx, allPartitions(), 0, "", len(s.runs))
	if err != nil {
		return err
	}
	reqs := make([]store.ClaimRequest, len(queued))
	for i, j := range rand.Perm(len(queued)) {
		q := queued[j]
		owner := fmt.Sprint("w/", s.owner.Add(1))
		reqs[i] = store.ClaimRequest{Fence: store.Fence{SKey: q.SKey, Gen: q.Gen, RunID: q.RunID, Owner: owner}}
	}
	claimed, err := s.store.Claim(ctx, reqs)
	if err != nil {
		return err
	}
	fins := make([]store.Finish, len(claimed))
	for i, j := range rand.Perm(len(claimed)) {
		fins[i] = finish(claimed[j], claimed[j].Inbox[0].Seq, reply())
	}
	finished, err := s.store.Finish(ctx, fins)
	if err != nil {
		return err
	}
	marks := make([]store.Mark, len(finished))
	for i, j := range rand.Perm(len(finished)) {
		marks[i] = store.Mark{SKey: fins[j].SKey, OutSeq: finished[j].FirstOut, State: store.OutSent}
	}
	_, err = s.store.MarkDeliveries(ctx, marks)
	return err
}

func allPartitions() []int {
	parts := make([]int, session.Partitions)
	for p := range parts {
		parts[p] = p
	}
	return parts
}

// Without the locking CTE and LockSessions deadlocks come within seconds.
func TestStore_ConcurrentBatchesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	url := database(t)
	db, err := pgstore.Open(t.Context(), pgstore.Config{URL: url, Connections: 4})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	s := &storm{store: db, runs: running(t, db, stormSessions)}
	fins := make([]store.Finish, len(s.runs))
	for i, r := range s.runs {
		fins[i] = finish(r, 1)
	}
	_, err = db.Finish(t.Context(), fins)
	require.NoError(t, err)
	var writers, workers sync.WaitGroup
	errs := make([]error, 5)
	for i, write := range []func(context.Context, int) error{s.admit, s.checkpoint} {
		writers.Go(func() {
			for round := 0; round < stormRounds && errs[i] == nil; round++ {
				errs[i] = write(t.Context(), round)
			}
		})
	}
	var written atomic.Bool
	for i := 2; i < len(errs); i++ {
		workers.Go(func() {
			for last := false; !last && errs[i] == nil; {
				last = written.Load() // one more turn finds what was admitted last
				errs[i] = s.turn(t.Context())
			}
		})
	}
	writers.Wait()
	written.Store(true)
	workers.Wait()
	for i, err := range errs {
		require.NoError(t, err, "worker %d", i)
	}
	db.Close() // a backend reports its statistics at the latest when it ends
	require.Zero(t, deadlocks(t, url))
	conn := connect(t, url)
	require.Equal(t, stormSessions*(1+2*stormRounds), scan[int](t, conn, `select count(*) from inbox`))
	require.Less(t, stormSessions, scan[int](t, conn, `select count(*) from runs where state = 'done'`), "turns were taken")
}

func deadlocks(t *testing.T, url string) int {
	t.Helper()
	conn := connect(t, url)
	await.True(t, 10*time.Second, func() bool {
		return scan[int](t, conn, `select count(*) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`) == 0
	}, "other connections end")
	return scan[int](t, conn, `select deadlocks from pg_stat_database where datname = current_database()`)
}

// The victim of a deadlock is sent again by the store itself. Somebody who does not lock in order makes one.
func TestCheckpoint_IsSentAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	url := database(t)
	s := open(t, url)
	runs := running(t, s, 2)
	low, high := runs[0], runs[1]
	if low.SKey > high.SKey {
		low, high = high, low
	}
	other, watcher := connect(t, url), connect(t, url)
	exec(t, other, `set deadlock_timeout = '1min'`) // so that the store is the victim
	exec(t, other, `begin`)
	exec(t, other, `select from sessions where skey = $1 for update`, high.SKey)

	done := make(chan error, 1)
	go func() {
		_, err := s.Checkpoint(t.Context(), []store.Checkpoint{
			{Fence: high.Fence, RunGen: high.FirstGen, Messages: said(1, `{}`)},
			{Fence: low.Fence, RunGen: low.FirstGen, Messages: said(1, `{}`)},
		})
		done <- err
	}()
	await.True(t, 10*time.Second, func() bool {
		return scan[int](t, watcher, `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`) == 1
	}, "the checkpoint holds one session and waits for the other")
	exec(t, other, `update sessions set touched_at = now() where skey = $1`, low.SKey)
	exec(t, other, `commit`)
	require.NoError(t, <-done)
	for _, r := range runs {
		got, err := s.RunMessages(t.Context(), r.RunID)
		require.NoError(t, err)
		require.Len(t, got, 1)
	}
	s.Close()
	require.NoError(t, other.Close(t.Context()))
	require.NoError(t, watcher.Close(t.Context()))
	require.NotZero(t, deadlocks(t, url))
}
