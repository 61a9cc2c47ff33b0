package storetest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func raceCases() []testCase {
	return []testCase{
		{"reset and finish: either comes first", raceResetFinish},
		{"reset and claim: either comes first", raceResetClaim},
		{"two resets of a new session are one after another", raceResetReset},
		{"queued stop and claim: one gets the run", raceStopClaim},
		{"hand-over and stop: the stop is not lost", raceHandoverStop},
		{"edit and finish: either comes first", raceEditFinish},
	}
}

// race calls both for each of some chats, all at once.
func (e *env) race(t *testing.T, prepare func(chat), one, other func(chat) error, check func(chat)) {
	t.Helper()
	var chats []chat
	for _, name := range uids("chat", 40) {
		chats = append(chats, newChat(name))
		prepare(chats[len(chats)-1])
	}
	start := make(chan struct{})
	var g errgroup.Group
	for _, c := range chats {
		for _, call := range []func(chat) error{one, other} {
			g.Go(func() error {
				<-start
				return call(c)
			})
		}
	}
	close(start)
	require.NoError(t, g.Wait())
	for _, c := range chats {
		check(c)
	}
}

// results keeps what calls that race return, by chat; prepare makes the places, so that calls write to their own.
type results[T any] map[chat]*T

func (r results[T]) place(c chat) { r[c] = new(T) }

// admitting is the call that admits a message to its chat.
func (e *env) admitting(t *testing.T, into results[store.Admitted], msg func(chat) store.AdmitMessage) func(chat) error {
	t.Helper()
	return func(c chat) error {
		got, err := e.Store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{msg(c)}})
		if err == nil {
			*into[c] = got[0]
			into[c].Kind, into[c].DoneSeq = "", 0
		}
		return err
	}
}

func raceResetFinish(t *testing.T, e *env) {
	resets, ends := results[store.Admitted]{}, results[store.FinishResult]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		resets.place(c)
		ends.place(c)
		runs[c] = e.start(t, c, "m1")
		e.admitOne(t, c.user("m2"))
	}, e.admitting(t, resets, func(c chat) store.AdmitMessage { return c.reset("m3") }), func(c chat) error {
		got, err := e.Store.Finish(t.Context(), []store.Finish{done(runs[c], 1, push("answer"))})
		if err == nil {
			*ends[c] = got[0]
		}
		return err
	}, func(c chat) {
		run, end := runs[c].RunID, *ends[c]
		want := store.Admitted{Seq: 3, Gen: 2, State: store.Idle, OutSeq: 1, Fenced: run}
		final, replies := []uuid.UUID{run}, 0
		if end.Outcome == store.Finished {
			want.Gen, want.OutSeq, want.Fenced = 3, 2, end.RunID
			final, replies = append(final, end.RunID), 1
		}
		require.Equal(t, want, *resets[c])
		require.Len(t, e.replies(t, run), replies)
		e.requireTiles(t, c, final...)
		require.Equal(t, int64(3), e.session(t, c).DoneSeq)
	})
}

func raceResetClaim(t *testing.T, e *env) {
	resets, claims := results[store.Admitted]{}, results[[]store.Claimed]{}
	runs := map[chat]store.Admitted{}
	e.race(t, func(c chat) {
		resets.place(c)
		claims.place(c)
		runs[c] = e.admitOne(t, c.user("m1"))
	}, e.admitting(t, resets, func(c chat) store.AdmitMessage { return c.reset("m2") }), func(c chat) (err error) {
		f := store.Fence{SKey: c.skey, Gen: runs[c].Gen, RunID: runs[c].RunID, Owner: worker}
		*claims[c], err = e.Store.Claim(t.Context(), []store.ClaimRequest{{Fence: f}})
		return err
	}, func(c chat) {
		require.Equal(t, runs[c].RunID, resets[c].Fenced)
		for _, claimed := range *claims[c] {
			e.requireOff(t, claimed)
		}
		require.Equal(t, store.RunCancelled, e.run(t, runs[c].RunID).State)
		require.Empty(t, e.run(t, runs[c].RunID).Owner)
		e.requireTiles(t, c, runs[c].RunID)
	})
}

func raceResetReset(t *testing.T, e *env) {
	one, other := results[store.Admitted]{}, results[store.Admitted]{}
	e.race(t, func(c chat) {
		one.place(c)
		other.place(c)
	}, e.admitting(t, one, func(c chat) store.AdmitMessage { return c.reset("m1") }),
		e.admitting(t, other, func(c chat) store.AdmitMessage { return c.reset("m2") }),
		func(c chat) {
			require.ElementsMatch(t, []int64{1, 2}, []int64{one[c].Seq, other[c].Seq})
			require.ElementsMatch(t, []int64{1, 2}, []int64{one[c].Gen, other[c].Gen})
			require.Equal(t, []int64{2, 2}, []int64{e.session(t, c).LastSeq, e.session(t, c).DoneSeq})
			convs := e.conversations(t, c)
			require.Len(t, convs, 2)
			requireConversations(t, convs, e.session(t, c).SessionID, convs[1].ID)
		})
}

func raceStopClaim(t *testing.T, e *env) {
	stops, claims := results[store.FinishResult]{}, results[[]store.Claimed]{}
	forms := map[chat]store.QueuedStop{}
	e.race(t, func(c chat) {
		stops.place(c)
		claims.place(c)
		e.admit(t, c.user("m1"), c.stop("m2"))
		forms[c] = e.stopOf(t, c, 2, push("stopped"))
	}, func(c chat) (err error) {
		*stops[c], err = e.Store.StopQueued(t.Context(), forms[c])
		return err
	}, func(c chat) (err error) {
		f := store.Fence{SKey: c.skey, Gen: forms[c].Gen, RunID: forms[c].RunID, Owner: worker}
		*claims[c], err = e.Store.Claim(t.Context(), []store.ClaimRequest{{Fence: f}})
		return err
	}, func(c chat) {
		if stops[c].Outcome == store.Finished {
			require.Empty(t, *claims[c])
		} else {
			require.Len(t, *claims[c], 1)
			e.finish(t, cancelled((*claims[c])[0], 2, push("stopped")))
		}
		require.Len(t, e.replies(t, forms[c].RunID), 1, "one confirmation")
		e.requireTiles(t, c, forms[c].RunID)
	})
}

func raceHandoverStop(t *testing.T, e *env) {
	stops := results[store.Admitted]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		stops.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.admitting(t, stops, func(c chat) store.AdmitMessage { return c.stop("m2") }), func(c chat) error {
		got, err := e.Store.Handover(t.Context(), []store.Checkpoint{{Fence: runs[c].Fence, RunGen: 1}})
		if err != nil {
			return err
		}
		return got[0].Err
	}, func(c chat) {
		require.Equal(t, runs[c].RunID, stops[c].StopRun)
		require.Contains(t, []store.SessionState{store.Running, store.Queued}, stops[c].State)
		require.Equal(t, store.Finished, e.stopQueued(t, e.stopOf(t, c, 2)).Outcome)
	})
}

func raceEditFinish(t *testing.T, e *env) {
	edits := results[store.Admitted]{}
	runs := map[chat]store.Claimed{}
	e.race(t, func(c chat) {
		edits.place(c)
		runs[c] = e.start(t, c, "m1")
	}, e.admitting(t, edits, func(c chat) store.AdmitMessage { return c.edit("e1", 1, "edited") }), func(c chat) error {
		_, err := e.Store.Finish(t.Context(), []store.Finish{done(runs[c], 1)})
		return err
	}, func(c chat) {
		want := map[bool]string{true: "edited", false: "m1"}[edits[c].Edited]
		require.Equal(t, []string{want}, e.texts(t, c))
		require.Equal(t, store.RunDone, e.run(t, runs[c].RunID).State, "the run is not disturbed")
	})
}
