package admission

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestRTR02_LatestAnswersTheNewestAndNamesThoseThatItReplaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy = Busy{Policy: event.PolicyLatest, Pending: 10}
	m1, m2, m3, m4 := message("webhook", "a", 1), message("webhook", "a", 2), message("webhook", "a", 3), message("webhook", "a", 4)
	b.admitAll(t, m1)
	s := b.session(t, m1)
	claimed, err := b.store.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{SKey: m1.SKey, Gen: s.Gen, RunID: s.RunID, Owner: "w/1"}}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	b.admitAll(t, m2, m3, m4)
	next := uuid.New()
	done, err := b.store.Finish(t.Context(), []store.Finish{{
		Fence: claimed[0].Fence, RunGen: claimed[0].FirstGen, From: 1, To: 1, State: store.RunDone, NextRunID: next,
	}})
	require.NoError(t, err)
	require.Equal(t, next, done[0].RunID, "exactly one more run")

	taken, _, err := inbox.Current(t.Context(), b.store, b.session(t, m1))
	require.NoError(t, err)
	require.Len(t, taken.Prompt, 1)
	require.Equal(t, m4.UID, taken.Prompt[0].UID)
	require.Len(t, taken.Superseded, 2)
	require.Equal(t, []string{m2.UID, m3.UID}, []string{taken.Superseded[0].UID, taken.Superseded[1].UID})
	require.EqualValues(t, 4, taken.To)
	require.Empty(t, taken.Waiting)
}

func TestRTR08_AMessageThatIsNotKeptIsSaidToBeRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy = Busy{Policy: event.PolicyQueue, Pending: 3}
	for n := range 4 { // the run's own, and as many as may wait
		b.admitAll(t, message("webhook", "a", n+1))
	}
	require.Equal(t, []event.Type{
		event.ProcessingStarted, event.MessagePending, event.MessagePending, event.MessagePending,
	}, b.rec.types())
	m5 := message("webhook", "a", 5)
	b.admitAll(t, m5)
	require.Equal(t, store.KindRefused, b.admitted(t, m5).Kind)
	require.Equal(t, fullText(3), b.notice(t, m5))
	require.Equal(t, event.MessageIgnored, b.rec.types()[4])
	require.EqualValues(t, 4, b.session(t, m5).WantSeq, "it wants no run")
}

func TestRTR10_ABurstForAnIdleSessionIsOneRunAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy = Busy{Policy: event.PolicyQueue, Pending: 200}
	var burst []*event.Message
	for n := range 50 {
		burst = append(burst, message("webhook", "a", n+1))
	}
	b.admitAll(t, burst...)
	require.Len(t, b.rec.runs, 1)
	s := b.session(t, burst[0])
	for i := range burst { // what each run in turn takes
		s.DoneSeq = int64(i)
		taken, _, err := inbox.Current(t.Context(), b.store, s)
		require.NoError(t, err)
		require.Len(t, taken.Prompt, 1)
		require.Equal(t, burst[i].UID, taken.Prompt[0].UID)
		require.Len(t, taken.Waiting, len(burst)-1-i)
	}
}

func TestInterrupt_OfARunWhoseWorkerIsGoneIsAnsweredByTheNextRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy = Busy{Policy: event.PolicyInterrupt, Pending: 10}
	m1, m2 := message("webhook", "a", 1), message("webhook", "a", 2)
	b.admitAll(t, m1)
	s := b.session(t, m1)
	_, err := b.store.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{SKey: m1.SKey, Gen: s.Gen, RunID: s.RunID, Owner: "w/1"}}})
	require.NoError(t, err)
	b.admitAll(t, m2)
	s = b.session(t, m1)
	require.Equal(t, s.RunID, s.StopRun)
	require.Len(t, b.rec.signals, 1, "the worker, if it lives, ends the run")

	taken, _, err := inbox.Current(t.Context(), b.store, s)
	require.NoError(t, err)
	require.EqualValues(t, 1, taken.To, "the end of the stopped run does not cover what interrupted it")
	require.Len(t, taken.Waiting, 1)
	require.Equal(t, m2.UID, taken.Waiting[0].UID)
}

func TestSteer_IsAnOrdinaryMessageWhereNothingIsGoingOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy = Busy{Policy: event.PolicySteer, Pending: 10}
	m1, m2 := message("webhook", "a", 1), message("webhook", "a", 2)
	b.admitAll(t, m1, m2)
	require.Equal(t, store.KindUser, b.admitted(t, m1).Kind)
	require.Equal(t, store.KindSteer, b.admitted(t, m2).Kind)
	require.Len(t, b.rec.runs, 1)
	require.EqualValues(t, 2, b.session(t, m1).CtlSeq)

	stop, m3 := slash("webhook", "a", 3, "stop"), message("webhook", "a", 4)
	b.admitAll(t, stop, m3)
	require.Equal(t, store.KindUser, b.admitted(t, m3).Kind, "the run is stopped: it takes nothing more")
}
