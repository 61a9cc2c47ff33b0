package admission

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/router/internal/cancel"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

// admitAll admits messages as the loop does, in as many batches as cut asks for.
func (b *bundle) admitAll(t *testing.T, messages ...*event.Message) {
	t.Helper()
	var batch []*candidate
	for _, m := range messages {
		batch = append(batch, b.entry(t, m))
	}
	for len(batch) > 0 {
		var now []*candidate
		now, batch = cut(batch)
		require.True(t, b.admit(t.Context(), now))
	}
}

func (b *bundle) session(t *testing.T, m *event.Message) store.Session {
	t.Helper()
	s, err := b.store.Session(t.Context(), m.SKey)
	require.NoError(t, err)
	return s
}

// notice returns the text that a message was answered with, "" if it was not.
func (b *bundle) notice(t *testing.T, m *event.Message) string {
	t.Helper()
	raw := b.admitted(t, m).Notice
	if raw == nil {
		return ""
	}
	var parts []channel.Part
	require.NoError(t, json.Unmarshal(raw, &parts))
	require.Len(t, parts, 1)
	require.True(t, parts[0].Notice)
	return parts[0].Markdown
}

func TestStart_IsAnsweredWithTheCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start := slash("webhook", "a", 1, "start") // what a chat platform sends when a person opens a bot
	b.admitAll(t, start)
	require.Equal(t, helpText(commands()), b.notice(t, start))
}

func TestStop_OfNothingSaysSo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stop", "cancel"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			stop := slash("webhook", "a", 1, name)
			b.admitAll(t, stop)
			require.Equal(t, store.KindStop, b.admitted(t, stop).Kind)
			require.Equal(t, "Nothing is running.", b.notice(t, stop))
			require.Len(t, b.rec.notices, 1)
			require.Empty(t, b.rec.signals)
			require.Empty(t, b.rec.stops)
			require.Empty(t, b.rec.types(), "egress completes what it delivers")
		})
	}
}

func TestStop_OfAQueuedRunHasItEndedWithoutAWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m, stop := message("webhook", "a", 1), slash("webhook", "a", 2, "stop")
	b.admitAll(t, m)
	b.admitAll(t, stop)
	s := b.session(t, m)
	require.Equal(t, s.RunID, s.StopRun)
	require.Len(t, b.rec.stops, 1)
	require.NotEmpty(t, b.rec.stops[0].Traceparent)
	b.rec.stops[0].Traceparent = ""
	require.Equal(t, cancel.Stop{SKey: m.SKey, RunID: s.RunID, Seq: 2, Gen: s.Gen, ReplyTo: stop.ReplyTo}, b.rec.stops[0])
	require.Empty(t, b.notice(t, stop), "whoever ends the run confirms")
	require.Empty(t, b.rec.signals)
	require.Equal(t, []event.Type{event.ProcessingStarted, event.RunInterrupted}, b.rec.types())
	require.Equal(t, s.RunID.String(), b.rec.events[1].RunID)
}

func TestStop_OfARunOfItsOwnBatchSparesTheDoorbell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stopped, other := message("webhook", "a", 1), message("webhook", otherPartition(t), 1)
	b.admitAll(t, stopped, other, slash("webhook", "a", 2, "stop"))
	require.Len(t, b.rec.stops, 1)
	require.Len(t, b.rec.runs, 1)
	require.Equal(t, other.SKey, b.rec.runs[0].SKey)
}

func TestStop_OfARunningRunSignalsThatRunOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m, waiting := message("webhook", "a", 1), message("webhook", "a", 2)
	b.admitAll(t, m, waiting)
	claimed := claimOne(t, b, m.SKey)
	stop, again := slash("webhook", "a", 3, "stop"), slash("webhook", "a", 4, "stop")
	b.admitAll(t, stop, again)
	want := dispatch.Signal{SKey: m.SKey, Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: 3, Gen: claimed.Gen, RunID: claimed.RunID}
	second := want
	second.Seq = 4
	require.Equal(t, []dispatch.Signal{want, second}, b.rec.signals)
	require.Empty(t, b.rec.stops)
	require.Empty(t, b.notice(t, stop))
	require.Empty(t, b.notice(t, again), "a second stop of a run is only covered")
	require.Equal(t, claimed.RunID, b.session(t, m).StopRun)
}

func TestNew_FencesTheRunAndTellsWhatWasDropped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := message("webhook", "a", 1)
	b.admitAll(t, m, message("webhook", "a", 2), slash("webhook", "a", 3, "help"), message("webhook", "a", 4))
	claimed := claimOne(t, b, m.SKey)
	before := b.session(t, m)
	reset := slash("webhook", "a", 5, "new")
	b.admitAll(t, reset)

	after := b.session(t, m)
	require.Equal(t, store.Idle, after.State)
	require.NotEqual(t, before.SessionID, after.SessionID)
	require.Equal(t, store.KindCommand, b.admitted(t, reset).Kind)
	require.Equal(t, "New conversation. The answer in progress was dropped. 2 waiting messages were dropped.", b.notice(t, reset))
	require.Equal(t, []dispatch.Signal{{
		SKey: m.SKey, Kind: runv1.ControlKind_CONTROL_KIND_FENCED, Seq: 5, Gen: after.Gen, RunID: claimed.RunID,
	}}, b.rec.signals)
	require.Greater(t, after.Gen, claimed.Gen)

	types := b.rec.types()
	require.Equal(t, []event.Type{event.SessionReset, event.RunFinished}, types[len(types)-2:])
	last := b.rec.events[len(types)-1]
	require.Equal(t, claimed.RunID.String(), last.RunID)
	require.Equal(t, "cancelled", last.Outcome)
}

func TestNew_IsSeenByTheMessagesBehindIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := message("webhook", "a", 1), message("webhook", "a", 3)
	reset, status := slash("webhook", "a", 2, "reset"), slash("webhook", "a", 4, "status")
	b.admitAll(t, first, reset, second, status)
	s := b.session(t, first)
	require.Equal(t, store.Queued, s.State)
	require.Equal(t, "New conversation. The answer in progress was dropped.", b.notice(t, reset))
	require.Contains(t, b.notice(t, status), "Waiting for a free worker since")
	require.Contains(t, b.notice(t, status), conversation(s.SessionID))
	run, err := b.store.Run(t.Context(), s.RunID)
	require.NoError(t, err)
	require.Equal(t, s.SessionID, run.SessionID)
	require.Equal(t, s.RunID, b.rec.runs[len(b.rec.runs)-1].RunID)
}

func TestNew_OfNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reset := slash("webhook", "a", 1, "new")
	b.admitAll(t, reset)
	require.Equal(t, "New conversation.", b.notice(t, reset))
	require.Empty(t, b.rec.signals)
	require.Equal(t, []event.Type{event.SessionReset}, b.rec.types())
	require.Empty(t, b.rec.events[0].RunID)
}

func TestStatus_CountsMessagesAndNoCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status := slash("webhook", "a", 6, "status")
	b.admitAll(t,
		message("webhook", "a", 1), slash("webhook", "a", 2, "help"), message("webhook", "a", 3),
		slash("webhook", "a", 4, "status"), message("webhook", "a", 5), status)
	require.Contains(t, b.notice(t, status), ", 2 messages waiting.")
}

func TestStatus_AfterAStopAndBeforeItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status := slash("webhook", "a", 4, "status")
	b.admitAll(t, message("webhook", "a", 1), message("webhook", "a", 2), slash("webhook", "a", 3, "stop"), status)
	require.Contains(t, b.notice(t, status), ", 1 message waiting.")
}

func TestHelp_ListsAllCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	help := slash("webhook", "a", 1, "help")
	b.admitAll(t, help)
	for _, c := range commands() {
		require.Contains(t, b.notice(t, help), "- /"+c.name+" – ")
	}
	require.Contains(t, b.notice(t, help), "/stop all")
}

// Commands reach the router with the name of the bot removed; other bots' commands do not reach it.
func TestING09_CommandsAddressedToABotByName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message *event.Message
		kind    store.InboxKind
		stopped bool
	}{
		"stop":                   {slash("telegram", "-500", 2, "stop"), store.KindStop, true},
		"stop with an argument":  {withArgs(slash("telegram", "-500", 2, "stop"), "please"), store.KindStop, true},
		"stopwatch":              {slash("telegram", "-500", 2, "stopwatch"), store.KindCommand, false},
		"a text that says /stop": {message("telegram", "-500", 2), store.KindUser, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := message("telegram", "-500", 1)
			b.admitAll(t, first, c.message)
			require.Equal(t, c.kind, b.admitted(t, c.message).Kind)
			require.Equal(t, c.stopped, b.session(t, first).StopRun != uuid.Nil)
		})
	}
}

func withArgs(m *event.Message, args string) *event.Message {
	m.Command.Args = args
	return m
}

func TestRefusal_IsToldAndReachesNoRun(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*event.Message{
		"message": message("telegram", "7001", 1), "command": slash("telegram", "7001", 1, "new"), "stop": slash("telegram", "7001", 1, "stop"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m.Refusal, m.Source.UserID = event.RefusedStranger, "700100200"
			b.admitAll(t, m)
			require.Equal(t, store.KindRefused, b.admitted(t, m).Kind)
			require.Equal(t, "You are not on the list of people who may use this bot. To be added, give its operator your id: `700100200`", b.notice(t, m))
			s := b.session(t, m)
			require.Equal(t, store.Idle, s.State)
			require.Zero(t, s.WantSeq)
			require.Empty(t, b.rec.runs)
			require.Empty(t, b.rec.stops)
			require.Len(t, b.rec.notices, 1)
		})
	}
}

func TestRefusal_Wording(t *testing.T) {
	t.Parallel()
	require.Equal(t, "You are not on the list of people who may use this bot.", refusalText(event.RefusedStranger, ""))
	require.NotContains(t, refusalText(event.RefusedStranger, "a`\nb"), "a`\nb")
	require.Equal(t, "This message was refused.", refusalText("another", "1"))
}

func TestAction_OfAQuestionThatNobodyAsks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m, press := message("telegram", "a", 1), message("telegram", "a", 2)
	press.Kind, press.CallID = event.KindAction, "c1"
	b.admitAll(t, m, press)
	require.Equal(t, store.KindApproval, b.admitted(t, press).Kind)
	require.Equal(t, "This question is no longer open.", b.notice(t, press))
	s := b.session(t, m)
	require.EqualValues(t, 1, s.WantSeq)
	require.Zero(t, s.WakeSeq)
}
