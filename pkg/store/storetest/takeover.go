package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func takeoverCases() []testCase {
	return []testCase{
		{"running runs tell of their worker", runningTold},
		{"running runs come in pages", runningPages},
		{"running sessions are counted by tenant", runningTenants},
		{"takeover queues the run and fences its owner off", takeoverQueues},
		{"takeover of a session that has moved on is fenced", takeoverFenced},
		{"takeovers with one call open are counted", takeoverStalls},
		{"finish counts takeovers anew", takeoverReset},
		{"takeover with a delay is dispatched later", takeoverDelay},
		{"reclaim gives the run a new owner", reclaimOwner},
		{"reclaim of a run that was lost is fenced", reclaimFenced},
		{"reclaim keeps a stop", reclaimStop},
	}
}

func (e *env) running(t tb) []store.ActiveRun {
	t.Helper()
	got, next, err := e.Store.RunningRuns(t.Context(), allPartitions(), "", 1000)
	require.NoError(t, err)
	require.Empty(t, next)
	return got
}

func runningTold(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, newChat("queued").user("m1"))
	e.suspend(t, e.start(t, newChat("waiting"), "m1"))
	e.Advance(t, time.Hour)
	got := e.running(t)
	require.Len(t, got, 1)
	require.Negative(t, got[0].Silent, "its worker has never said anything")
	require.GreaterOrEqual(t, got[0].Untouched, time.Hour)
	require.Less(t, got[0].Untouched, 2*time.Hour)
	got[0].Silent, got[0].Untouched = 0, 0
	require.Equal(t, store.ActiveRun{
		SKey: c.skey, Tenant: tenant, RunClass: runClass, Gen: 1, RunID: run.RunID, Owner: worker,
	}, got[0])

	require.NoError(t, e.Store.Heartbeat(t.Context(), store.WorkerBeat{WorkerID: "worker-1", Boot: newID()}))
	require.NoError(t, e.Store.Heartbeat(t.Context(), store.WorkerBeat{WorkerID: "worker-2", Boot: newID()}))
	e.Advance(t, time.Hour)
	e.checkpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: 1})
	got = e.running(t)
	require.GreaterOrEqual(t, got[0].Silent, time.Hour)
	require.Less(t, got[0].Silent, 2*time.Hour)
	require.Less(t, got[0].Untouched, time.Hour)
}

func runningPages(t *testing.T, e *env) {
	want, mine := map[string]bool{}, map[string]bool{}
	for _, name := range uids("chat", 25) {
		c := newChat(name)
		e.start(t, c, "m1")
		want[c.skey] = true
		if session.Partition(c.skey) < session.Partitions/2 {
			mine[c.skey] = true
		}
	}
	for partitions, skeys := range map[int]map[string]bool{session.Partitions: want, session.Partitions / 2: mine} {
		seen, last, after := map[string]bool{}, "", ""
		for {
			page, next, err := e.Store.RunningRuns(t.Context(), allPartitions()[:partitions], after, 7)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), 7)
			for _, r := range page {
				require.Greater(t, r.SKey, last)
				seen[r.SKey], last = true, r.SKey
			}
			if next == "" {
				break
			}
			after = next
		}
		require.Equal(t, skeys, seen)
	}
}

func runningTenants(t *testing.T, e *env) {
	for _, name := range uids("chat", 3) {
		e.start(t, newChat(name), "m1")
	}
	e.admitOne(t, newChat("queued").user("m1"))
	m := newChat("x").user("m1")
	m.Tenant, m.SKey = "globex", session.SKey("globex", m.SessionKey)
	a := e.admitOne(t, m)
	_, ok := e.tryClaim(t, store.Fence{SKey: m.SKey, Gen: a.Gen, RunID: a.RunID, Owner: worker})
	require.True(t, ok)
	got, err := e.Store.RunningByTenant(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{tenant: 3, "globex": 1}, got)
}

func (e *env) tryTakeover(t tb, q store.Takeover) (store.TakenOver, error) {
	t.Helper()
	return e.Store.Takeover(t.Context(), q)
}

func takeoverQueues(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	got, err := e.tryTakeover(t, store.Takeover{SKey: c.skey, Gen: 1, Owner: worker})
	require.NoError(t, err)
	require.Equal(t, store.TakenOver{Gen: 2, RunID: run.RunID, Attempt: 1}, got)
	s := e.session(t, c)
	require.Equal(t, []any{store.Queued, "", 1, 0}, []any{s.State, s.Owner, s.Attempt, s.Stall})
	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunQueued, "", int64(1), int64(2)}, []any{r.State, r.Owner, r.FirstGen, r.LastGen})
	e.requireOff(t, run)
	require.Len(t, e.queued(t, allPartitions(), 0), 1)
	again := e.claim(t, c, "worker-2/b")
	require.Equal(t, []any{run.RunID, 1, 2}, []any{again.RunID, again.Attempt, again.Attempts})
}

func takeoverFenced(t *testing.T, e *env) {
	c := newChat("a")
	e.start(t, c, "m1")
	for _, q := range []store.Takeover{
		{SKey: c.skey, Gen: 2, Owner: worker},
		{SKey: c.skey, Gen: 1, Owner: "worker-1/b"},
		{SKey: c.skey, Gen: 1},
		{SKey: newChat("b").skey, Gen: 1, Owner: worker},
	} {
		_, err := e.tryTakeover(t, q)
		require.ErrorIs(t, err, store.ErrFenced)
	}
	require.Zero(t, e.session(t, c).Attempt)
	e.takeOver(t, c)
	for _, owner := range []string{worker, ""} {
		_, err := e.tryTakeover(t, store.Takeover{SKey: c.skey, Gen: 2, Owner: owner})
		require.ErrorIs(t, err, store.ErrFenced, "a queued run has no owner")
	}
	require.Equal(t, 1, e.session(t, c).Attempt)
}

func takeoverStalls(t *testing.T, e *env) {
	c := newChat("a")
	e.start(t, c, "m1")
	for i, step := range []struct {
		key   string
		stall int
	}{{"k1", 1}, {"k1", 2}, {"", 2}, {"k1", 3}, {"k2", 1}, {"k1", 1}} {
		s := e.session(t, c)
		got, err := e.tryTakeover(t, store.Takeover{SKey: c.skey, Gen: s.Gen, Owner: s.Owner, StallKey: step.key})
		require.NoError(t, err)
		require.Equal(t, []int{i + 1, step.stall}, []int{got.Attempt, got.Stall})
		e.claim(t, c, worker)
	}
	active := e.running(t)[0]
	require.Equal(t, []any{6, 1, "k1"}, []any{active.Attempt, active.Stall, active.StallKey})
}

func takeoverReset(t *testing.T, e *env) {
	c := newChat("a")
	e.start(t, c, "m1")
	q := store.Takeover{SKey: c.skey, Gen: 1, Owner: worker, StallKey: "k1"}
	_, err := e.tryTakeover(t, q)
	require.NoError(t, err)
	e.finish(t, done(e.claim(t, c, worker), 1))
	require.Equal(t, []int{0, 0}, []int{e.session(t, c).Attempt, e.session(t, c).Stall})
	q.Gen = e.start(t, c, "m2").Gen
	got, err := e.tryTakeover(t, q)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{got.Attempt, got.Stall})
}

func takeoverDelay(t *testing.T, e *env) {
	c, other := newChat("a"), newChat("b")
	e.start(t, c, "m1")
	e.Advance(t, time.Second)
	_, err := e.tryTakeover(t, store.Takeover{SKey: c.skey, Gen: 1, Owner: worker, Delay: 10 * time.Minute})
	require.NoError(t, err)
	e.admitOne(t, other.user("m1"))
	require.Equal(t, []string{other.skey}, queuedKeys(e.queued(t, allPartitions(), 0)))
	e.Advance(t, 9*time.Minute)
	require.Equal(t, []string{other.skey}, queuedKeys(e.queued(t, allPartitions(), 2*time.Second)))
	e.Advance(t, 2*time.Minute)
	require.ElementsMatch(t, []string{c.skey, other.skey}, queuedKeys(e.queued(t, allPartitions(), 2*time.Second)))
	_, queued, err := e.Store.Backlog(t.Context(), allPartitions())
	require.NoError(t, err)
	require.Equal(t, 2, queued)
	e.claim(t, c, worker)

	soon := newChat("c")
	e.start(t, soon, "m1")
	_, err = e.tryTakeover(t, store.Takeover{SKey: soon.skey, Gen: 1, Owner: worker, Delay: time.Hour})
	require.NoError(t, err)
	e.claim(t, soon, worker)
}

func queuedKeys(runs []store.QueuedRun) []string {
	var out []string
	for _, r := range runs {
		out = append(out, r.SKey)
	}
	return out
}

func (e *env) reclaim(t tb, rs ...store.Reclaim) []store.Reclaimed {
	t.Helper()
	got, err := e.Store.Reclaim(t.Context(), rs)
	require.NoError(t, err)
	require.Len(t, got, len(rs))
	return got
}

func reclaimOwner(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	require.Equal(t, []store.Reclaimed{{Gen: 2}}, e.reclaim(t, store.Reclaim{Fence: run.Fence, Fresh: "worker-1/b"}))
	s := e.session(t, c)
	require.Equal(t, []any{store.Running, "worker-1/b", int64(2), 0}, []any{s.State, s.Owner, s.Gen, s.Attempt})
	r := e.run(t, run.RunID)
	require.Equal(t, []any{store.RunRunning, "worker-1/b", int64(1), int64(2)}, []any{r.State, r.Owner, r.FirstGen, r.LastGen})
	require.Equal(t, []store.StopState{{}}, e.stops(t, run.Fence))
	require.ErrorIs(t, e.tryCheckpoint(t, store.Checkpoint{Fence: run.Fence, RunGen: 1}).Err, store.ErrFenced)

	mine := run
	mine.Gen, mine.Owner = 2, "worker-1/b"
	e.checkpoint(t, store.Checkpoint{Fence: mine.Fence, RunGen: 1})
	f := done(mine, 1, push("answer"))
	e.finish(t, f)
	require.Equal(t, store.FinishResult{}, e.tryFinish(t, f), "a repetition finds its own commit")
}

func reclaimFenced(t *testing.T, e *env) {
	lost, held := newChat("lost"), newChat("held")
	old, run := e.start(t, lost, "m1"), e.start(t, held, "m1")
	e.takeOver(t, lost)
	got := e.reclaim(t,
		store.Reclaim{Fence: old.Fence, Fresh: "worker-1/b"},
		store.Reclaim{Fence: run.Fence, Fresh: "worker-1/c"},
		store.Reclaim{Fence: store.Fence{SKey: newChat("x").skey, Gen: 1, RunID: newID(), Owner: worker}, Fresh: "worker-1/d"},
	)
	require.ErrorIs(t, got[0].Err, store.ErrFenced)
	require.Equal(t, store.Reclaimed{Gen: 2}, got[1])
	require.ErrorIs(t, got[2].Err, store.ErrFenced)
	s := e.session(t, lost)
	require.Equal(t, []any{store.Queued, int64(2)}, []any{s.State, s.Gen})
	require.ErrorIs(t, e.reclaim(t, store.Reclaim{Fence: run.Fence, Fresh: "worker-1/e"})[0].Err, store.ErrFenced, "repeated")
}

func reclaimStop(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.stop("m2"))
	e.reclaim(t, store.Reclaim{Fence: run.Fence, Fresh: "worker-1/b"})
	fence := store.Fence{SKey: c.skey, Gen: 2, RunID: run.RunID, Owner: "worker-1/b"}
	require.Equal(t, []store.StopState{{StopRun: run.RunID, Held: true}}, e.stops(t, fence))
	mine := store.Claimed{Fence: fence, FirstGen: 1}
	require.Equal(t, store.FinishStopped, e.tryFinish(t, done(mine, 2)).Outcome)
	require.Equal(t, uuid.Nil, e.finish(t, cancelled(mine, 2)).RunID)
}
