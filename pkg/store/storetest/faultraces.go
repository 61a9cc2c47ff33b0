package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func faultRaceCases() []testCase {
	return []testCase{
		{"takeover and finish: one gets the run", raceTakeoverFinish},
		{"takeover and checkpoint: a step is stored or fenced", raceTakeoverCheckpoint},
		{"two takeovers: one gets the run", raceTakeovers},
		{"takeover and reclaim: one gets the run", raceTakeoverReclaim},
		{"giving up and finish: one answers", raceGiveUpFinish},
		{"ending a stopped run and its cancelled form: one confirms", raceEndStopped},
		{"suspending and answer: the answer is not lost", raceSuspendApproval},
		{"suspending and interrupt: the stop is not lost", raceSuspendInterrupt},
		{"pause and claim: nobody keeps the run", racePauseClaim},
		{"pause and finish: either comes first", racePauseFinish},
		{"pause and message: it is not lost", racePauseAdmit},
		{"two operators unpause: one run begins", raceUnpause},
		{"end of a quiet window and message: one run begins", raceWakeAdmit},
		{"two sweepers wake what is due once", raceWake},
		{"two first messages collect in one window", raceCollect},
		{"two messages that refuse to wait: one is refused", raceReject},
		{"resume and finish: either comes first", raceResumeFinish},
		{"reply of a checkpoint and notice are numbered apart", raceReplyNotice},
		{"gap and mark: nothing stays behind", raceGapMark},
		{"two redeliveries write one row", raceRedeliver},
		{"two sweepers move a timer once", raceTimer},
		{"two replays are counted apart", raceReplay},
	}
}

// fencedOr tells an answer from a call that came too late.
func fencedOr(err error) (ok bool, other error) {
	if errors.Is(err, store.ErrFenced) {
		return false, nil
	}
	return err == nil, err
}

// taking is the call that takes the first generation of the chat's run from worker.
func (e *env) taking(t *testing.T, into results[bool]) func(chat) error {
	t.Helper()
	return func(c chat) (err error) {
		_, err = e.Store.Takeover(t.Context(), store.Takeover{SKey: c.skey, Gen: 1, Owner: worker})
		*into[c], err = fencedOr(err)
		return err
	}
}

// finishing is the call that ends the chat's run.
func (e *env) finishing(t *testing.T, into results[store.FinishResult], form func(chat) store.Finish) func(chat) error {
	t.Helper()
	return func(c chat) error {
		got, err := e.Store.Finish(t.Context(), []store.Finish{form(c)})
		if err == nil {
			*into[c] = got[0]
		}
		return err
	}
}

func raceTakeoverFinish(t *testing.T, e *env) {
	taken, ends := results[bool]{}, results[store.FinishResult]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		taken.place(c)
		ends.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.taking(t, taken), e.finishing(t, ends, func(c chat) store.Finish { return done(runs[c], 1, push("answer")) }), func(c chat) {
		require.Equal(t, *taken[c], ends[c].Outcome == store.FinishFenced)
		if *taken[c] {
			require.Empty(t, e.replies(t, runs[c].RunID))
			e.finish(t, done(e.claim(t, c, "worker-2/b"), 1, push("answer")))
		}
		require.Len(t, e.replies(t, runs[c].RunID), 1)
		e.requireTiles(t, c, runs[c].RunID)
	})
}

func raceTakeoverCheckpoint(t *testing.T, e *env) {
	taken, stored := results[bool]{}, results[bool]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		taken.place(c)
		stored.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.taking(t, taken), func(c chat) error {
		got, err := e.Store.Checkpoint(t.Context(), []store.Checkpoint{{
			Fence: runs[c].Fence, RunGen: 1, Messages: []store.Message{said(1, "user", "m1", 1)},
			ToolCalls: []store.ToolCall{call("c1", "unsafe", store.ToolIntent, "")}, Replies: []store.NewReply{named("k", "one")},
		}})
		if err == nil {
			*stored[c], err = fencedOr(got[0].Err)
		}
		return err
	}, func(c chat) {
		require.True(t, *taken[c])
		want := map[bool]int{true: 1, false: 0}[*stored[c]]
		again := e.claim(t, c, "worker-2/b")
		require.Equal(t, []int{want, want, want, want},
			[]int{len(e.history(t, c, 10)), len(again.ToolCalls), len(e.replies(t, again.RunID)), int(again.OutSeq)})
	})
}

func raceTakeovers(t *testing.T, e *env) {
	one, other := results[bool]{}, results[bool]{}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
		e.start(t, c, "m1")
	}, e.taking(t, one), e.taking(t, other), func(c chat) {
		require.NotEqual(t, *one[c], *other[c])
		s := e.session(t, c)
		require.Equal(t, []any{store.Queued, int64(2), 1}, []any{s.State, s.Gen, s.Attempt})
	})
}

func raceTakeoverReclaim(t *testing.T, e *env) {
	taken, kept := results[bool]{}, results[bool]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		taken.place(c)
		kept.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.taking(t, taken), func(c chat) error {
		got, err := e.Store.Reclaim(t.Context(), []store.Reclaim{{Fence: runs[c].Fence, Fresh: "worker-1/b"}})
		if err == nil {
			*kept[c], err = fencedOr(got[0].Err)
		}
		return err
	}, func(c chat) {
		require.NotEqual(t, *taken[c], *kept[c])
		s, r := e.session(t, c), e.run(t, runs[c].RunID)
		require.Equal(t, int64(2), s.Gen)
		require.Equal(t, map[bool]string{true: "worker-1/b", false: ""}[*kept[c]], s.Owner)
		require.Equal(t, []any{s.Owner, s.Gen}, []any{r.Owner, r.LastGen})
	})
}

func raceGiveUpFinish(t *testing.T, e *env) {
	given, ends := results[store.FinishResult]{}, results[store.FinishResult]{}
	runs, forms := map[chat]store.Claimed{}, map[chat]store.GiveUp{}
	e.race(t, func(c chat) {
		given.place(c)
		ends.place(c)
		runs[c] = e.start(t, c, "m1")
		e.admitOne(t, c.user("m2"))
		forms[c] = e.givingUp(t, c, 1, push("sorry"))
	}, func(c chat) (err error) {
		*given[c], err = e.Store.GiveUp(t.Context(), forms[c])
		return err
	}, e.finishing(t, ends, func(c chat) store.Finish { return done(runs[c], 1, push("answer")) }), func(c chat) {
		require.NotEqual(t, given[c].Outcome == store.Finished, ends[c].Outcome == store.Finished)
		require.Len(t, e.replies(t, runs[c].RunID), 1)
		want := map[bool]store.RunState{true: store.RunDead, false: store.RunDone}[given[c].Outcome == store.Finished]
		require.Equal(t, want, e.run(t, runs[c].RunID).State)
		_, err := e.Store.DeadLetter(t.Context(), forms[c].Letter.ID)
		require.Equal(t, want == store.RunDead, err == nil)
		next := e.claim(t, c, worker)
		require.Contains(t, []uuid.UUID{given[c].RunID, ends[c].RunID}, next.RunID)
		e.requireTiles(t, c, runs[c].RunID)
	})
}

func raceEndStopped(t *testing.T, e *env) {
	swept, ends := results[store.FinishResult]{}, results[store.FinishResult]{}
	runs, forms := map[chat]store.Claimed{}, map[chat]store.QueuedStop{}
	e.race(t, func(c chat) {
		swept.place(c)
		ends.place(c)
		runs[c] = e.start(t, c, "m1")
		e.admitOne(t, c.stop("m2"))
		forms[c] = e.stopOf(t, c, 2, push("stopped"))
	}, func(c chat) (err error) {
		*swept[c], err = e.Store.EndStopped(t.Context(), forms[c])
		return err
	}, e.finishing(t, ends, func(c chat) store.Finish { return cancelled(runs[c], 2, push("stopped")) }), func(c chat) {
		require.NotEqual(t, swept[c].Outcome == store.Finished, ends[c].Outcome == store.Finished)
		require.Len(t, e.replies(t, runs[c].RunID), 1, "one confirmation")
		e.requireTiles(t, c, runs[c].RunID)
	})
}

// suspending is the call that lets the chat's run wait.
func (e *env) suspending(t *testing.T, runs map[chat]store.Claimed) func(chat) error {
	t.Helper()
	return func(c chat) error {
		got, err := e.Store.Suspend(t.Context(), []store.Suspension{suspension(runs[c])})
		if err == nil {
			err = got[0].Err
		}
		return err
	}
}

func raceSuspendApproval(t *testing.T, e *env) {
	answers := results[store.Admitted]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		answers.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.admitting(t, answers, func(c chat) store.AdmitMessage { return c.approval("m2") }), e.suspending(t, runs), func(c chat) {
		require.Equal(t, store.Queued, e.session(t, c).State)
		again := e.claim(t, c, worker)
		require.Equal(t, []any{runs[c].RunID, 2}, []any{again.RunID, len(again.Inbox)})
	})
}

func raceSuspendInterrupt(t *testing.T, e *env) {
	stops := results[store.Admitted]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		stops.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.admitting(t, stops, func(c chat) store.AdmitMessage { return c.interrupting("m2") }), e.suspending(t, runs), func(c chat) {
		s := e.session(t, c)
		require.Equal(t, []any{store.Queued, runs[c].RunID, runs[c].RunID}, []any{s.State, s.RunID, s.StopRun})
		require.Equal(t, store.Finished, e.stopQueued(t, e.stopOf(t, c, 1)).Outcome)
		require.Len(t, e.claim(t, c, worker).Inbox, 1)
	})
}

// pausing is the call that pauses the chat.
func (e *env) pausing(t *testing.T) func(chat) error {
	t.Helper()
	return func(c chat) error {
		_, err := e.Store.Pause(t.Context(), c.skey)
		return err
	}
}

func racePauseClaim(t *testing.T, e *env) {
	claims := results[[]store.Claimed]{}
	runs := map[chat]store.Admitted{}
	e.race(t, func(c chat) {
		claims.place(c)
		runs[c] = e.admitOne(t, c.user("m1"))
	}, e.pausing(t), func(c chat) (err error) {
		f := store.Fence{SKey: c.skey, Gen: runs[c].Gen, RunID: runs[c].RunID, Owner: worker}
		*claims[c], err = e.Store.Claim(t.Context(), []store.ClaimRequest{{Fence: f}})
		return err
	}, func(c chat) {
		s, r := e.session(t, c), e.run(t, runs[c].RunID)
		require.Equal(t, []any{store.Paused, "", int64(2)}, []any{s.State, s.Owner, s.Gen})
		require.Equal(t, []any{store.RunWaiting, ""}, []any{r.State, r.Owner})
		for _, claimed := range *claims[c] {
			e.requireOff(t, claimed)
		}
		require.Equal(t, runs[c].RunID, e.unpause(t, c).RunID)
	})
}

func racePauseFinish(t *testing.T, e *env) {
	ends := results[store.FinishResult]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		ends.place(c)
		runs[c] = e.start(t, c, "m1")
		e.admitOne(t, c.user("m2"))
	}, e.pausing(t), e.finishing(t, ends, func(c chat) store.Finish { return done(runs[c], 1, push("answer")) }), func(c chat) {
		s := e.session(t, c)
		want := map[bool]uuid.UUID{true: ends[c].RunID, false: runs[c].RunID}[ends[c].Outcome == store.Finished]
		require.Equal(t, []any{store.Paused, want}, []any{s.State, s.RunID})
		require.Equal(t, store.RunWaiting, e.run(t, want).State)
		require.Equal(t, want, e.unpause(t, c).RunID)
		require.NotEmpty(t, e.claim(t, c, worker).Inbox)
	})
}

func racePauseAdmit(t *testing.T, e *env) {
	answers := results[store.Admitted]{}
	e.race(t, func(c chat) {
		answers.place(c)
		e.answer(t, c, "m1")
	}, e.pausing(t), e.admitting(t, answers, func(c chat) store.AdmitMessage { return c.user("m2") }), func(c chat) {
		s := e.session(t, c)
		require.Equal(t, []any{store.Paused, int64(2)}, []any{s.State, s.WantSeq})
		require.Equal(t, answers[c].Created, s.RunID != uuid.Nil)
		require.Equal(t, store.Queued, e.unpause(t, c).State)
		require.Len(t, e.claim(t, c, worker).Inbox, 1)
	})
}

func raceUnpause(t *testing.T, e *env) {
	one, other := results[store.Unpaused]{}, results[store.Unpaused]{}
	unpausing := func(into results[store.Unpaused]) func(chat) error {
		return func(c chat) (err error) {
			*into[c], err = e.Store.Unpause(t.Context(), c.skey, newID())
			return err
		}
	}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
		e.answer(t, c, "m1")
		e.pause(t, c)
		e.admitOne(t, c.user("m2"))
	}, unpausing(one), unpausing(other), func(c chat) {
		require.Equal(t, *one[c], *other[c])
		require.Equal(t, one[c].RunID, e.claim(t, c, worker).RunID)
	})
}

// waking is the call that wakes what is due in the chat's partition.
func (e *env) waking(t *testing.T, woken func(store.QueuedRun)) func(chat) error {
	t.Helper()
	return func(c chat) error {
		fresh := make([]uuid.UUID, 50)
		for i := range fresh {
			fresh[i] = newID()
		}
		got, err := e.Store.WakeDue(t.Context(), []int{session.Partition(c.skey)}, fresh)
		for _, q := range got {
			woken(q)
		}
		return err
	}
}

func raceWakeAdmit(t *testing.T, e *env) {
	answers := results[store.Admitted]{}
	e.race(t, func(c chat) {
		answers.place(c)
		m := c.user("m1")
		m.Collect = &store.Collect{Quiet: -time.Second, Max: time.Hour}
		e.admitOne(t, m)
	}, e.waking(t, func(store.QueuedRun) {}), e.admitting(t, answers, func(c chat) store.AdmitMessage {
		m := c.user("m2")
		m.EndsCollect = true
		return m
	}), func(c chat) {
		require.Equal(t, store.Queued, answers[c].State)
		run := e.claim(t, c, worker)
		require.Equal(t, []any{answers[c].RunID, answers[c].Gen}, []any{run.RunID, run.FirstGen})
		require.Len(t, run.Inbox, 2)
		e.finish(t, done(run, 2))
		e.requireTiles(t, c, run.RunID)
	})
}

func raceWake(t *testing.T, e *env) {
	var mu sync.Mutex
	woken := map[string][]store.QueuedRun{}
	waking := e.waking(t, func(q store.QueuedRun) {
		mu.Lock()
		defer mu.Unlock()
		woken[q.SKey] = append(woken[q.SKey], q)
	})
	e.race(t, func(c chat) {
		m := c.user("m1")
		m.Collect = &store.Collect{Quiet: -time.Second, Max: time.Hour}
		e.admitOne(t, m)
	}, waking, waking, func(c chat) {
		// A sweeper may skip what another one is waking; it looks again.
		require.NoError(t, waking(c))
		require.Len(t, woken[c.skey], 1)
		run := e.claim(t, c, worker)
		require.Equal(t, []any{woken[c.skey][0].RunID, woken[c.skey][0].Gen}, []any{run.RunID, run.Gen})
	})
}

func raceCollect(t *testing.T, e *env) {
	one, other := results[store.Admitted]{}, results[store.Admitted]{}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
	}, e.admitting(t, one, func(c chat) store.AdmitMessage { return c.collected("m1") }),
		e.admitting(t, other, func(c chat) store.AdmitMessage { return c.collected("m2") }),
		func(c chat) {
			s := e.session(t, c)
			require.Equal(t, []any{store.Waiting, uuid.Nil, int64(2), int64(2)}, []any{s.State, s.RunID, s.LastSeq, s.WantSeq})
			require.False(t, one[c].Created || other[c].Created)
		})
}

func raceReject(t *testing.T, e *env) {
	one, other := results[store.Admitted]{}, results[store.Admitted]{}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
		e.answer(t, c, "m0")
	}, e.admitting(t, one, func(c chat) store.AdmitMessage { return c.rejecting("m1") }),
		e.admitting(t, other, func(c chat) store.AdmitMessage { return c.rejecting("m2") }),
		func(c chat) {
			require.NotEqual(t, one[c].Created, other[c].Created)
			require.Equal(t, int64(1), one[c].OutSeq+other[c].OutSeq, "one notice")
			run := e.claim(t, c, worker)
			require.Equal(t, []store.InboxKind{store.KindUser, store.KindRefused}, []store.InboxKind{run.Inbox[0].Kind, run.Inbox[1].Kind})
		})
}

func raceResumeFinish(t *testing.T, e *env) {
	resets, ends := results[store.Admitted]{}, results[store.FinishResult]{}
	runs, first := map[chat]store.Claimed{}, map[chat]uuid.UUID{}
	e.race(t, func(c chat) {
		resets.place(c)
		ends.place(c)
		e.turn(t, c, "0")
		first[c] = e.session(t, c).SessionID
		e.admitOne(t, c.reset("new"))
		runs[c] = e.start(t, c, "m1")
	}, e.admitting(t, resets, func(c chat) store.AdmitMessage { return c.resume("resume", first[c]) }),
		e.finishing(t, ends, func(c chat) store.Finish {
			f := done(runs[c], 3, push("answer"))
			f.Messages = []store.Message{said(1, "user", "m1", 3)}
			return f
		}), func(c chat) {
			finished := ends[c].Outcome == store.Finished
			require.Equal(t, finished, resets[c].Fenced == uuid.Nil)
			require.Equal(t, first[c], e.session(t, c).SessionID)
			require.Equal(t, []string{"user: q0", "assistant: a0"}, transcript(t, e.history(t, c, 10)))
			require.Len(t, e.historyOf(t, c, runs[c].SessionID, 10), map[bool]int{true: 1, false: 0}[finished])
		})
}

func raceReplyNotice(t *testing.T, e *env) {
	notices, replies := results[store.Admitted]{}, results[store.CheckpointResult]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		notices.place(c)
		replies.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.admitting(t, notices, func(c chat) store.AdmitMessage { return c.command("m2") }), func(c chat) error {
		got, err := e.Store.Checkpoint(t.Context(), []store.Checkpoint{{
			Fence: runs[c].Fence, RunGen: 1, Replies: []store.NewReply{named("k", "one")},
		}})
		if err == nil {
			*replies[c] = got[0]
		}
		return err
	}, func(c chat) {
		require.ElementsMatch(t, []int64{1, 2}, []int64{notices[c].OutSeq, replies[c].FirstOut})
		require.Equal(t, int64(2), e.session(t, c).OutSeq)
		require.Equal(t, replies[c].FirstOut, e.replies(t, runs[c].RunID)[0].OutSeq)
	})
}

func raceGapMark(t *testing.T, e *env) {
	e.race(t, func(c chat) {
		e.answer(t, c, "m1", push("1"), push("2"), push("3"))
		e.mark(t, sent(c, 2))
	}, func(c chat) error {
		_, err := e.Store.MarkDeliveries(t.Context(), []store.Mark{sent(c, 1)})
		return err
	}, func(c chat) error {
		_, err := e.Store.SettleGaps(t.Context(), []int{session.Partition(c.skey)}, 100)
		return err
	}, func(c chat) {
		e.gaps(t)
		require.Equal(t, int64(2), e.session(t, c).OutSent)
		e.requireDeliverable(t, sender, c.out(3), true, "it is next")
	})
}

func raceRedeliver(t *testing.T, e *env) {
	one, other := results[store.Doorbell]{}, results[store.Doorbell]{}
	redelivering := func(into results[store.Doorbell]) func(chat) error {
		return func(c chat) (err error) {
			*into[c], err = e.Store.Redeliver(t.Context(), c.skey, named("again#r1", "answer"))
			return err
		}
	}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
		e.answer(t, c, "m1", push("answer"))
		e.mark(t, undeliverable(c, 1))
	}, redelivering(one), redelivering(other), func(c chat) {
		want := store.Doorbell{SKey: c.skey, OutSeq: 2, Platform: "telegram"}
		require.Equal(t, []store.Doorbell{want, want}, []store.Doorbell{*one[c], *other[c]})
		require.Equal(t, int64(2), e.session(t, c).OutSeq)
	})
}

func raceTimer(t *testing.T, e *env) {
	one, other := results[bool]{}, results[bool]{}
	due := e.now(t).Truncate(time.Millisecond)
	moving := func(into results[bool]) func(chat) error {
		return func(c chat) (err error) {
			*into[c], err = e.Store.MoveTimer(t.Context(), c.skey, due, due.Add(time.Hour))
			return err
		}
	}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
		e.putTimer(t, c.timer(c.skey, due))
	}, moving(one), moving(other), func(c chat) {
		require.NotEqual(t, *one[c], *other[c])
	})
}

func raceReplay(t *testing.T, e *env) {
	one, other := results[store.StoredLetter]{}, results[store.StoredLetter]{}
	ids := map[chat]uuid.UUID{}
	counting := func(into results[store.StoredLetter]) func(chat) error {
		return func(c chat) (err error) {
			*into[c], err = e.Store.CountReplay(t.Context(), ids[c])
			return err
		}
	}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
		ids[c] = e.bury(t, 1, store.DeadKindIngress)[0]
	}, counting(one), counting(other), func(c chat) {
		require.ElementsMatch(t, []int{1, 2}, []int{one[c].Replays, other[c].Replays})
	})
}
