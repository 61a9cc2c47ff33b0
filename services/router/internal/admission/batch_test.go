package admission

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestCut_BeforeAStatusThatFollowsItsSession(t *testing.T) {
	t.Parallel()
	msg := func(chat string) *event.Message { return message("webhook", chat, 1) }
	cmd := func(chat, name string) *event.Message { return slash("webhook", chat, 2, name) }
	for name, c := range map[string]struct {
		batch []*event.Message
		now   int
	}{
		"messages only":           {[]*event.Message{msg("a"), msg("a"), msg("b")}, 3},
		"status alone":            {[]*event.Message{cmd("a", "status")}, 1},
		"status first":            {[]*event.Message{cmd("a", "status"), msg("a")}, 2},
		"status after others":     {[]*event.Message{msg("b"), cmd("a", "status"), msg("b")}, 3},
		"status after message":    {[]*event.Message{msg("b"), msg("a"), cmd("a", "status"), msg("b")}, 2},
		"status after status":     {[]*event.Message{cmd("a", "status"), cmd("a", "status")}, 1},
		"help needs no cut":       {[]*event.Message{msg("a"), cmd("a", "help")}, 2},
		"dead letters are passed": {[]*event.Message{nil, msg("a"), nil, cmd("a", "status")}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var batch []*candidate
			for _, m := range c.batch {
				if m == nil {
					batch = append(batch, b.raw(t, 0, bus.Msg{Data: []byte{0xff}}))
				} else {
					batch = append(batch, b.entry(t, m))
				}
			}
			now, later := cut(batch)
			require.Len(t, now, c.now)
			require.Equal(t, batch, append(now, later...))
		})
	}
}

func TestNext_TakesWhatIsThereUpToTheLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range maxBatch {
		b.queue <- b.entry(t, message("webhook", "a", n)).delivery
	}
	carried := b.entry(t, message("webhook", "a", maxBatch))
	b.carry = []*candidate{carried}
	batch := b.next(t.Context())
	require.Len(t, batch, maxBatch)
	require.Same(t, carried, batch[0], "what was left over comes first")
	b.carry = nil
	require.Len(t, b.next(t.Context()), 1)
}

func TestNext_StopsAtTheSizeLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	big := delivery{Entry: bus.Entry{Msg: bus.Msg{Data: make([]byte, maxBatchBytes/2+1)}}, from: b.attached(t, 0)}
	for range 3 {
		b.queue <- big
	}
	require.Len(t, b.next(t.Context()), 2)
	require.Len(t, b.next(t.Context()), 1)
}

func TestRun_AnswersStatusAfterTheMessagesBeforeIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	msg, status, last := message("webhook", "a", 1), slash("webhook", "a", 2, "status"), message("webhook", "a", 3)
	for _, m := range []*event.Message{msg, status, last} {
		b.queue <- b.entry(t, m).delivery
	}
	require.NoError(t, b.Start(t.Context()))
	require.Eventually(t, func() bool {
		_, err := b.store.Submission(t.Context(), last.SKey, last.UID)
		return err == nil
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, b.Stop(t.Context()))
	require.NoError(t, b.Stop(t.Context()))
	require.Contains(t, string(b.admitted(t, status).Notice), "Waiting for a free worker")
	require.EqualValues(t, 3, b.offsetOf(t, session.Partition(msg.SKey)))
}

func TestLag_IsZeroForAPartitionInWhichNothingHappens(t *testing.T) {
	t.Parallel()
	at := newAttachment(t.Context(), 1, start{position: 10})
	defer at.drop()
	require.EqualValues(t, 90, at.lag(100), "not known yet")
	require.Zero(t, at.lag(100), "nothing came since the last look")
	at.delivered.Store(150)
	require.EqualValues(t, 190, at.lag(200))
	require.EqualValues(t, 190, at.lag(200), "delivered and not admitted")
	at.position.Store(150)
	require.Zero(t, at.lag(200))
}

func TestStatus_Wording(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	id := uuid.MustParse("01890000-0000-7000-8000-0000deadbeef")
	for want, s := range map[string]status{
		"No messages yet.\n\nConversation: new · Profile: p":                                 {},
		"Idle: nothing is running and nothing waits.\n\nConversation: deadbeef · Profile: p": {session: store.Session{State: store.Idle, SessionID: id}},
		"Answering since 05:06:07 UTC.\n\nConversation: deadbeef · Profile: p":               {session: store.Session{State: store.Running, SessionID: id}, since: at},
		"Answering since 05:06:07 UTC, 3 messages waiting.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Running, SessionID: id}, since: at, waiting: 3,
		},
		"Waiting for a free worker since 05:06:07 UTC, 1 message waiting.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Queued, SessionID: id}, since: at, waiting: 1,
		},
		"Waiting for an approval.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Waiting, WaitKind: store.WaitApproval, SessionID: id},
		},
		"Waiting for your answer to a question, 1 message waiting.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Waiting, WaitKind: store.WaitQuestion, SessionID: id}, waiting: 1,
		},
		"Waiting until 05:06:07 UTC.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Waiting, WaitKind: store.WaitTimer, WakeAt: at, SessionID: id},
		},
		"Collecting since 05:06:07 UTC: the answer to 2 messages begins now.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Waiting, WaitKind: store.WaitCollect, SessionID: id}, since: at, collected: 2,
		},
		"Answering since 05:06:07 UTC. Its worker was last heard of at 05:06:07 UTC, 3s ago.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Running, SessionID: id}, since: at, worker: sign{known: true, at: at, silent: 3900 * time.Millisecond},
		},
		"Answering since 05:06:07 UTC. Its worker has been silent since 05:06:07 UTC: another one takes over.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Running, SessionID: id}, since: at, worker: sign{known: true, at: at, silent: workerDead},
		},
		"Answering since 05:06:07 UTC. Its worker has never been heard of.\n\nConversation: deadbeef · Profile: p": {
			session: store.Session{State: store.Running, SessionID: id}, since: at, worker: sign{known: true},
		},
		"Paused by an operator; messages are kept.\n\nConversation: deadbeef · Profile: p": {session: store.Session{State: store.Paused, SessionID: id}},
	} {
		s.profile = "p"
		require.Equal(t, want, s.text())
	}
}
