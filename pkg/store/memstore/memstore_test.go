package memstore

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/storetest"
)

// manualClock stands still until it is moved.
type manualClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *manualClock { return &manualClock{now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)} }

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) Move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Backend {
		clock := newClock()
		s := New(WithClock(clock.Now))
		return storetest.Backend{
			Store:   s,
			Advance: func(_ testing.TB, d time.Duration) { clock.Move(d) },
		}
	})
}

func admit(t *testing.T, s *Store, msgs ...store.AdmitMessage) []store.Admitted {
	t.Helper()
	got, err := s.Admit(t.Context(), store.Admission{Messages: msgs})
	require.NoError(t, err)
	return got
}

func message(skey, uid string) store.AdmitMessage {
	return store.AdmitMessage{
		SKey: skey, UID: uid, Kind: store.KindUser, SessionID: uuid.New(), RunID: uuid.New(), WantsRun: true,
	}
}

// suspend lets the run wait for an answer.
func suspend(t *testing.T, s *Store, run store.Claimed) {
	t.Helper()
	got, err := s.Suspend(t.Context(), []store.Suspension{{Checkpoint: store.Checkpoint{Fence: run.Fence}, Seen: run.LastSeq}})
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
}

func running(t *testing.T, s *Store) store.Claimed {
	t.Helper()
	a := admit(t, s, message("a", "m1"))[0]
	got, err := s.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{SKey: "a", Gen: a.Gen, RunID: a.RunID, Owner: "w/1"}}})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

func TestStore_WaitingRunIsWokenByWakingRowsOnly(t *testing.T) {
	t.Parallel()
	s := New()
	run := running(t, s)
	suspend(t, s, run)

	user := admit(t, s, message("a", "m2"))[0]
	require.Equal(t, store.Waiting, user.State)
	require.False(t, user.Created)

	approval := message("a", "m3")
	approval.Kind, approval.WantsRun, approval.Wakes = store.KindApproval, false, true
	woken := admit(t, s, approval)[0]
	require.Equal(t, store.Queued, woken.State)
	require.Equal(t, run.RunID, woken.RunID)
	require.False(t, woken.Created)
	require.Equal(t, int64(3), woken.Gen)
	got, err := s.Run(t.Context(), run.RunID)
	require.NoError(t, err)
	require.Equal(t, store.RunQueued, got.State)
	require.Equal(t, int64(3), got.LastGen)
}

func TestStore_StopWakesWaitingRunAndNamesIt(t *testing.T) {
	t.Parallel()
	s := New()
	run := running(t, s)
	suspend(t, s, run)
	stop := message("a", "m2")
	stop.Kind, stop.WantsRun, stop.Wakes, stop.Stop = store.KindStop, false, true, true
	got := admit(t, s, stop)[0]
	require.Equal(t, store.Queued, got.State)
	require.Equal(t, run.RunID, got.StopRun)
}

func TestStore_PausedSessionStoresAndStartsNothing(t *testing.T) {
	t.Parallel()
	s := New()
	run := running(t, s)
	_, err := s.Pause(t.Context(), "a")
	require.NoError(t, err)
	got := admit(t, s, message("a", "m2"))[0]
	require.Equal(t, store.Paused, got.State)
	require.Equal(t, run.RunID, got.RunID)
	require.Equal(t, int64(2), got.Seq)
}

func TestStore_ClockThatIsSetBackStandsStill(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := New(WithClock(clock.Now))
	admit(t, s, message("a", "m1"))
	clock.Move(-time.Hour)
	admit(t, s, message("b", "m1"))
	a, err := s.Session(t.Context(), "a")
	require.NoError(t, err)
	b, err := s.Session(t.Context(), "b")
	require.NoError(t, err)
	require.Equal(t, a.QueuedAt, b.QueuedAt)
}

func TestStore_RefusesRunIDsThatAreInUse(t *testing.T) {
	t.Parallel()
	s := New()
	first := message("a", "m1")
	admit(t, s, first)
	second := message("b", "m1")
	second.RunID = first.RunID
	for _, id := range []uuid.UUID{first.RunID, uuid.Nil} {
		second.RunID = id
		_, err := s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{second}})
		require.ErrorIs(t, err, store.ErrRejected)
	}
	_, err := s.Session(t.Context(), "b")
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestStore_KeepsCopiesOfWhatTheCallerMayReuse(t *testing.T) {
	t.Parallel()
	s := New()
	m := message("a", "m1")
	m.Body = []byte(`{"text":"one"}`)
	admit(t, s, m)
	copy(m.Body, `{"text":"two"}`)
	got, err := s.Submission(t.Context(), "a", "m1")
	require.NoError(t, err)
	require.JSONEq(t, `{"text":"one"}`, string(got.Body))
}

func TestPartition_QueueStaysSmallAndInOrder(t *testing.T) {
	t.Parallel()
	var p partition
	enter := func() *sessionRow {
		r := &sessionRow{Session: store.Session{State: store.Queued}}
		p.enter(r)
		return r
	}
	last := enter()
	for range 1000 {
		r := enter()
		p.leave(r)
		r.State = store.Idle
	}
	newest := enter()
	require.LessOrEqual(t, len(p.queue), 2*p.queued+17)
	live := slices.DeleteFunc(slices.Clone(p.queue), queueEntry.stale)
	require.Len(t, live, 2)
	require.Same(t, last, live[0].row)
	require.Same(t, newest, live[1].row)
	require.Equal(t, 2, p.queued)
	behind := slices.DeleteFunc(slices.Clone(p.behind(last.ticket)), queueEntry.stale)
	require.Len(t, behind, 1)
	require.Same(t, newest, behind[0].row)
}

func TestStore_RefusesACursorThatItDidNotMake(t *testing.T) {
	t.Parallel()
	_, _, err := New().QueuedRuns(t.Context(), []int{1}, 0, "not a cursor", 10)
	require.ErrorContains(t, err, "not a cursor")
}

// BenchmarkStore_Turn is one turn of a new session: its cost must not grow with their number.
func BenchmarkStore_Turn(b *testing.B) {
	s := New()
	n := 0
	for b.Loop() {
		n++
		skey := fmt.Sprint("chat", n)
		m := message(skey, "m1")
		a, err := s.Admit(b.Context(), store.Admission{Messages: []store.AdmitMessage{m}})
		require.NoError(b, err)
		fence := store.Fence{SKey: skey, Gen: a[0].Gen, RunID: a[0].RunID, Owner: "w/1"}
		_, err = s.Claim(b.Context(), []store.ClaimRequest{{Fence: fence}})
		require.NoError(b, err)
		f := store.Finish{Fence: fence, RunGen: 1, From: 1, To: 1, State: store.RunDone, Replies: []store.NewReply{{Platform: "p"}}}
		_, err = s.Finish(b.Context(), []store.Finish{f})
		require.NoError(b, err)
		_, err = s.MarkDeliveries(b.Context(), []store.Mark{{SKey: skey, OutSeq: 1, State: store.OutSent}})
		require.NoError(b, err)
	}
}
