package admission

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// under is a bundle whose profiles have a policy.
func under(t *testing.T, policy event.Policy) *bundle {
	t.Helper()
	b := setup(t)
	b.busy.Policy = policy
	return b
}

// by is message n of chat a by somebody.
func by(user string, n int) *event.Message {
	m := message("webhook", "a", n)
	m.Source.UserID = user
	return m
}

func (b *bundle) stored(t *testing.T, m *event.Message) *event.Message {
	t.Helper()
	var got event.Message
	require.NoError(t, json.Unmarshal(b.admitted(t, m).Body, &got))
	return &got
}

// prompt returns the uids of what the current run takes, or the next one would.
func (b *bundle) prompt(t *testing.T, m *event.Message) []string {
	t.Helper()
	taken, _, err := inbox.Current(t.Context(), b.store, b.session(t, m))
	require.NoError(t, err)
	var uids []string
	for _, row := range taken.Prompt {
		uids = append(uids, row.UID)
	}
	return uids
}

func TestPolicy_TheOneThatCountsIsInTheRow(t *testing.T) {
	t.Parallel()
	for _, policy := range event.Policies() {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			b := under(t, policy)
			b.admitAll(t, by("u", 1))
			require.Equal(t, policy, policyOf(b.stored(t, by("u", 1))), "the profile's")

			own := message("webhook", otherPartition(t), 1)
			own.BusyPolicy = event.PolicyQueue
			b.admitAll(t, own)
			require.Equal(t, event.PolicyQueue, b.stored(t, own).BusyPolicy, "its own")
		})
	}
}

func TestCollect_WaitsAndJoinsWhatOneSenderWrites(t *testing.T) {
	t.Parallel()
	b := under(t, event.PolicyCollect)
	m1, m2 := by("u", 1), by("u", 2)
	m2.Group = "album"
	b.admitAll(t, m1, m2)
	s := b.session(t, m1)
	require.True(t, collecting(s))
	require.Empty(t, b.rec.runs)
	require.Equal(t, []string{m1.UID, m2.UID}, b.prompt(t, m1))
	require.Equal(t, []event.Type{event.MessagePending, event.MessageMerged}, b.rec.types())
}

func TestCollect_EndsWithAnythingThatIsAnotherTurn(t *testing.T) {
	t.Parallel()
	steer := by("u", 2)
	steer.BusyPolicy = event.PolicySteer
	latest := by("u", 2)
	latest.BusyPolicy = event.PolicyLatest
	for name, end := range map[string]*event.Message{
		"another sender": by("v", 2), "/queue": withArgs(slash("webhook", "a", 2, "queue"), "later"), "steer": steer, "latest": latest,
		"status": slash("webhook", "a", 2, "status"), "help": slash("webhook", "a", 2, "help"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := under(t, event.PolicyCollect)
			m1 := by("u", 1)
			b.admitAll(t, m1, end)
			s := b.session(t, m1)
			require.Equal(t, store.Queued, s.State)
			require.Len(t, b.rec.runs, 1)
			require.Equal(t, s.RunID, b.rec.runs[0].RunID)
			require.Equal(t, []string{m1.UID}, b.prompt(t, m1))
			require.Equal(t, event.ProcessingStarted, b.rec.events[1].Type)
			require.Empty(t, b.rec.events[1].MsgUID, "it is not the message that ended the window that is answered")
		})
	}
}

func TestCollect_AStrangersCommandEndsNoWindow(t *testing.T) {
	t.Parallel()
	b := under(t, event.PolicyCollect)
	stranger := slash("webhook", "a", 2, "help")
	stranger.Refusal = event.RefusedStranger
	b.admitAll(t, by("u", 1), stranger)
	require.True(t, collecting(b.session(t, stranger)))
}

// Whoever is told of a stop must not be answered afterwards.
func TestStop_OfWhatIsCollectedDropsItAndKeepsTheConversation(t *testing.T) {
	t.Parallel()
	b := under(t, event.PolicyCollect)
	m, stop := by("u", 1), slash("webhook", "a", 3, "stop")
	b.admitAll(t, m, by("u", 2))
	before := b.session(t, m)
	b.admitAll(t, stop)
	s := b.session(t, m)
	require.Equal(t, store.Idle, s.State)
	require.Equal(t, before.SessionID, s.SessionID)
	require.EqualValues(t, 3, s.DoneSeq)
	require.Equal(t, "Stopped. 2 waiting messages were dropped.", b.notice(t, stop))
	require.Equal(t, store.KindStop, b.admitted(t, stop).Kind)
	require.Equal(t, store.RunCancelled, b.admitted(t, m).Run.State)
	require.Empty(t, b.rec.runs)
	require.NotContains(t, b.rec.types(), event.SessionReset)
}

func TestLatest_TellsOfAMessageThatReplacesAnother(t *testing.T) {
	t.Parallel()
	b := under(t, event.PolicyLatest)
	m1, queued := by("u", 1), by("u", 4)
	queued.BusyPolicy = event.PolicyQueue
	b.admitAll(t, m1)
	claimOne(t, b, m1.SKey)
	b.admitAll(t, by("u", 2), by("v", 3), queued, by("u", 5))
	require.Equal(t, []event.Type{
		event.ProcessingStarted,
		event.MessagePending, // the first one is being answered
		event.MessageMerged,
		event.MessagePending,
		event.MessagePending, // it does not reach over the queued one
	}, b.rec.types())
}

func TestInterrupt_OfARunningRunStopsItWithoutAConfirmation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m1 := by("u", 1)
	b.admitAll(t, m1, by("u", 2))
	claimed := claimOne(t, b, m1.SKey)
	first, second := withArgs(slash("webhook", "a", 3, "interrupt"), "now"), withArgs(slash("webhook", "a", 4, "interrupt"), "no, this")
	b.admitAll(t, first, second)
	require.Equal(t, claimed.RunID, b.session(t, m1).StopRun)
	require.Equal(t, store.KindUser, b.admitted(t, first).Kind)
	require.Empty(t, b.notice(t, first))
	require.Equal(t, runv1.ControlKind_CONTROL_KIND_STOP, b.rec.signals[0].Kind)
	require.Equal(t, []event.Type{
		event.ProcessingStarted, event.MessagePending, event.RunInterrupted, event.MessagePending, event.MessagePending,
	}, b.rec.types(), "a run is interrupted once")
}

func TestInterrupt_OfARunThatHasNotBegunIsTakenByIt(t *testing.T) {
	t.Parallel()
	b := under(t, event.PolicyInterrupt)
	m1, m2 := by("u", 1), by("u", 2)
	b.admitAll(t, m1, m2)
	require.Equal(t, uuid.Nil, b.session(t, m1).StopRun)
	require.Empty(t, b.rec.stops)
	require.Empty(t, b.rec.signals)
	require.NotContains(t, b.rec.types(), event.RunInterrupted)
	require.Equal(t, []string{m1.UID, m2.UID}, b.prompt(t, m1))
}

func TestInterrupt_OfARunThatWaitsHasItEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m1 := by("u", 1)
	b.suspended(t, m1)
	b.admitAll(t, withArgs(slash("webhook", "a", 2, "interrupt"), "never mind"))
	s := b.session(t, m1)
	require.Equal(t, store.Queued, s.State)
	require.Len(t, b.rec.stops, 1)
	require.Equal(t, s.RunID, b.rec.stops[0].RunID)
	require.Equal(t, s.Gen, b.rec.stops[0].Gen)
}

// suspended admits m and leaves its run waiting for the answer to call c1.
func (b *bundle) suspended(t *testing.T, m *event.Message) {
	t.Helper()
	b.admitAll(t, m)
	c := claimOne(t, b, m.SKey)
	res, err := b.store.Suspend(t.Context(), []store.Suspension{{
		Checkpoint: store.Checkpoint{
			Fence: c.Fence, RunGen: c.FirstGen, Messages: []store.Message{{RunGen: c.FirstGen, RunID: c.RunID, Role: "user", Content: []byte(`{}`), InboxSeq: 1}},
			ToolCalls: []store.ToolCall{{CallID: "c1", Name: askUser, Effect: "read", State: store.ToolIntent}},
		},
		Seen: c.LastSeq, Kind: store.WaitQuestion, WakeAt: time.Now().Add(time.Hour),
	}})
	require.NoError(t, err)
	require.NoError(t, res[0].Err)
	require.Equal(t, store.Waiting, res[0].State)
}

func TestApproveAndDeny_AnswerTheOpenQuestion(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"approve", "deny"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m, late := by("u", 1), slash("webhook", "b", 1, name)
			b.suspended(t, m)
			b.admitAll(t, by("u", 2))
			require.Equal(t, store.Waiting, b.session(t, m).State, "an ordinary message does not wake it")
			answer := withArgs(slash("webhook", "a", 3, name), "since you ask")
			b.admitAll(t, answer, late)
			require.Equal(t, store.KindApproval, b.admitted(t, answer).Kind)
			require.Equal(t, "c1", b.stored(t, answer).CallID)
			s := b.session(t, m)
			require.Equal(t, store.Queued, s.State)
			require.Equal(t, s.RunID, b.rec.runs[len(b.rec.runs)-1].RunID)
			require.Contains(t, b.rec.types(), event.ApprovalResolved)
			require.Equal(t, noQuestionText, b.notice(t, late))
			require.Equal(t, store.KindCommand, b.admitted(t, late).Kind)
		})
	}
}

func TestReject_RefusesWhileBusyOnly(t *testing.T) {
	t.Parallel()
	b := under(t, event.PolicyReject)
	m1, m2 := by("u", 1), by("u", 2)
	b.admitAll(t, m1, m2)
	require.Equal(t, store.KindUser, b.admitted(t, m1).Kind)
	require.Empty(t, b.notice(t, m1))
	require.Equal(t, store.KindRefused, b.admitted(t, m2).Kind)
	require.Equal(t, busyText, b.notice(t, m2))
	require.EqualValues(t, 1, b.session(t, m1).WantSeq)
	require.Equal(t, []event.Type{event.ProcessingStarted, event.MessageIgnored}, b.rec.types())
}

func TestPolicyCommands_BecomeTheirText(t *testing.T) {
	t.Parallel()
	for name, policy := range policyCommands() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			empty, m := slash("webhook", "a", 1, name), withArgs(slash("webhook", "a", 2, name), "'; drop table inbox; --")
			m.BlobRef = "blob"
			b.admitAll(t, empty, m)
			require.Equal(t, emptyPolicyText(name), b.notice(t, empty))
			got := b.stored(t, m)
			require.Equal(t, []any{m.UID, event.KindMessage, "'; drop table inbox; --", policy, "blob"},
				[]any{got.UID, got.Kind, got.Text, got.BusyPolicy, got.BlobRef})
			require.Nil(t, got.Command)
			require.NotEqual(t, uuid.Nil, b.session(t, m).RunID)
		})
	}
}

func TestPending_ADuplicateCountsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy.Pending = 3
	m := by("u", 1)
	for range 10 {
		b.admitAll(t, m)
	}
	require.EqualValues(t, 1, b.backlog.of(m.SKey).atMost())
}

func TestPending_MessagesOfOneBatchAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy.Pending = 3
	var burst []*event.Message
	for n := range 20 {
		burst = append(burst, by("u", n+1))
	}
	b.admitAll(t, burst...)
	refused := 0
	for _, m := range burst {
		if b.admitted(t, m).Kind == store.KindRefused {
			refused++
		}
	}
	require.Equal(t, 16, refused, "one is answered, three wait")
	require.Equal(t, store.KindUser, b.admitted(t, burst[3]).Kind)
}

func TestPending_WithoutALimitNothingIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.busy.Pending = 0
	b.admitAll(t, by("u", 1), by("u", 2), by("u", 3))
	require.EqualValues(t, 3, b.session(t, by("u", 1)).WantSeq)
}

func TestAdmit_TakesALargeRow(t *testing.T) {
	t.Parallel()
	b := under(t, event.PolicyLatest)
	m := by("u", 1)
	m.Text = strings.Repeat(`"\'`, (event.MaxEncodedBytes-4096)/3)
	b.admitAll(t, m)
	require.Equal(t, m.Text, b.stored(t, m).Text)
}

func TestRTR04_AFailedRunLeavesTheNextMessageItsTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := by("u", 1)
	b.admitAll(t, m, by("u", 2), by("u", 3), by("u", 4))
	for n := range 4 {
		require.Equal(t, []string{by("u", n+1).UID}, b.prompt(t, m))
		c := claimOne(t, b, m.SKey)
		_, err := b.store.Finish(t.Context(), []store.Finish{{
			Fence: c.Fence, RunGen: c.FirstGen, From: int64(n + 1), To: int64(n + 1), State: store.RunFailed, NextRunID: newID(),
		}})
		require.NoError(t, err)
	}
	require.Equal(t, store.Idle, b.session(t, m).State)
}

func TestRTR09_StatusTellsSinceWhenTheOwnerIsSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m, never, heard := by("u", 1), slash("webhook", "a", 2, "status"), slash("webhook", "a", 3, "status")
	b.admitAll(t, m)
	claimOne(t, b, m.SKey) // by worker w
	b.admitAll(t, never)
	require.Contains(t, b.notice(t, never), "Its worker has never been heard of.")
	require.NoError(t, b.store.Heartbeat(t.Context(), store.WorkerBeat{WorkerID: "w", Boot: uuid.New()}))
	b.admitAll(t, heard)
	require.Contains(t, b.notice(t, heard), "Its worker was last heard of at ")
}
