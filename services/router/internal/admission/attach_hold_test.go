package admission

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/hold"
)

// restored is an admitter whose Postgres knows offset 10 of a stream of which it had admitted 30 before, age ago.
type restored struct {
	*bundle
	log       *scriptedLog
	partition int
	clock     time.Time
}

var madeAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func restoredAt(t *testing.T, partition int, age time.Duration) *restored {
	t.Helper()
	r := &restored{bundle: setup(t), partition: partition, clock: madeAt.Add(24 * time.Hour)}
	r.log = &scriptedLog{
		info: bus.LogInfo{Stream: "ING_0", Created: madeAt, FirstSeq: 1, LastSeq: 50}, head: bus.Entry{Msg: bus.Msg{ID: "u"}, Seq: 10},
	}
	r.Log = r.log
	r.now = func() time.Time { return r.clock }
	r.setOffset(t, nil, 10)
	c := copied{Stream: "ING_0", Created: madeAt, Offsets: []copiedOffset{{Seq: 30, At: r.clock.Add(-age)}}}
	require.NoError(t, saveCopy(t.Context(), &r.log.kv, partition, c, 0))
	return r
}

func (r *restored) setOffset(t *testing.T, old *store.Offset, seq int64) {
	t.Helper()
	off := store.Offset{Partition: r.partition, Stream: "ING_0", StreamCreated: madeAt, LastSeq: seq, LastUID: "u", LastAt: r.clock}
	require.NoError(t, r.store.Store.SetOffset(t.Context(), old, off))
}

func (r *restored) copy(t *testing.T) *copied {
	t.Helper()
	c, _, err := loadCopy(t.Context(), &r.log.kv, r.partition)
	require.NoError(t, err)
	return &c
}

func TestAttach_HoldsAPartitionWhosePostgresWentBackUntilSomebodyChooses(t *testing.T) {
	t.Parallel()
	const p = 7
	r := restoredAt(t, p, 2*time.Minute)
	for range 2 { // a router looks again and again
		_, err := r.attach(t.Context(), p)
		require.ErrorIs(t, err, errHeld)
	}
	holds, err := hold.List(t.Context(), &r.log.kv)
	require.NoError(t, err)
	want := hold.Hold{
		Partition: p, Reason: hold.ReasonWentBack, Since: r.clock, Stream: "ING_0", Created: madeAt,
		Offset: 10, CopiedOffset: 30, UntilSeq: 30,
	}
	require.Equal(t, []hold.Hold{want}, holds)

	require.NoError(t, hold.Choose(t.Context(), &r.log.kv, p, hold.Store))
	want.Choice = hold.Store
	got, err := r.attach(t.Context(), p)
	require.NoError(t, err)
	require.EqualValues(t, 11, got.from)
	require.Equal(t, &want, got.again)
	require.EqualValues(t, 10, r.copy(t).last(), "the copy that proved it does not hold the partition again")
}

func TestAttach_ARestoreToBeforeTheFirstAdmissionIsHeldToo(t *testing.T) {
	t.Parallel()
	r := restoredAt(t, 7, 2*time.Minute)
	other := setup(t) // an empty store
	other.Log, other.now = r.log, r.now
	_, err := other.attach(t.Context(), 7)
	require.ErrorIs(t, err, errHeld)
	offs, err := other.store.Offsets(t.Context(), []int{7})
	require.NoError(t, err)
	require.Empty(t, offs)
}

func TestAttach_ATailThatACrashOfPostgresTookIsReadAgainWithoutAHold(t *testing.T) {
	t.Parallel()
	r := restoredAt(t, 7, 5*time.Second)
	got, err := r.attach(t.Context(), 7)
	require.NoError(t, err)
	require.EqualValues(t, 11, got.from)
	require.Nil(t, got.again)
}

func TestAttach_ACopyOfAnotherStreamProvesNothing(t *testing.T) {
	t.Parallel()
	r := restoredAt(t, 7, time.Hour)
	_, revision, err := loadCopy(t.Context(), &r.log.kv, 7)
	require.NoError(t, err)
	other := copied{Stream: "ING_0", Created: madeAt.Add(-time.Hour), Offsets: []copiedOffset{{Seq: 30, At: madeAt}}}
	require.NoError(t, saveCopy(t.Context(), &r.log.kv, 7, other, revision))
	_, err = r.attach(t.Context(), 7)
	require.NoError(t, err)
}

func TestAttach_ARewindTakesTheCopyBack(t *testing.T) {
	t.Parallel()
	r := restoredAt(t, 7, time.Hour)
	r.log.info.LastSeq, r.log.since = 5, 3 // the stream lost its tail
	got, err := r.attach(t.Context(), 7)
	require.NoError(t, err)
	require.EqualValues(t, 3, got.from)
	require.Equal(t, []copiedOffset{{Seq: 2, At: r.clock}}, r.copy(t).Offsets)
	r.clock = r.clock.Add(time.Hour)
	_, err = r.attach(t.Context(), 7)
	require.NoError(t, err)
}

func TestAttach_HoldsAgainIfPostgresGoesBackOnceMore(t *testing.T) {
	t.Parallel()
	r := restoredAt(t, 7, time.Hour)
	_, err := r.attach(t.Context(), 7)
	require.ErrorIs(t, err, errHeld)
	require.NoError(t, hold.Choose(t.Context(), &r.log.kv, 7, hold.Answer))
	c := r.copy(t)
	c.note(20, r.clock)
	_, revision, err := loadCopy(t.Context(), &r.log.kv, 7)
	require.NoError(t, err)
	require.NoError(t, saveCopy(t.Context(), &r.log.kv, 7, *c, revision))
	r.clock = r.clock.Add(time.Hour)
	_, err = r.attach(t.Context(), 7)
	require.ErrorIs(t, err, errHeld)
	h, _, err := hold.Get(t.Context(), &r.log.kv, 7)
	require.NoError(t, err)
	require.Empty(t, h.Choice)
	require.EqualValues(t, 20, h.CopiedOffset)
	require.EqualValues(t, 30, h.UntilSeq, "what was admitted before the first time is still not new")
}

func TestCopied_KeepsOneOldOffsetAndTheYoungOnes(t *testing.T) {
	t.Parallel()
	var c copied
	require.EqualValues(t, -1, c.last())
	require.False(t, c.proves(0, madeAt))
	for i := range 20 {
		c.note(int64(i), madeAt.Add(time.Duration(i)*copyEvery))
	}
	now := madeAt.Add(19 * copyEvery)
	require.EqualValues(t, 12, c.Offsets[0].Seq)
	require.Len(t, c.Offsets, 8)
	require.EqualValues(t, 19, c.last())
	require.True(t, c.proves(11, now))
	require.False(t, c.proves(12, now), "what is younger than a minute may be lost in a crash")
}

func TestCopyAll_NotesHowFarEveryPartitionHasCome(t *testing.T) {
	t.Parallel()
	r := restoredAt(t, 7, 5*time.Second)
	begun, err := r.attach(t.Context(), 7)
	require.NoError(t, err)
	at := newAttachment(t.Context(), 7, begun)
	defer at.drop()
	rd := &reader{Admitter: r.Admitter, partition: 7}
	rd.current.Store(at)
	r.readers[7] = rd

	r.copyAll(t.Context())
	require.EqualValues(t, 30, r.copy(t).last(), "a tail that is lost for a moment does not take the copy back")
	at.position.Store(35)
	r.copyAll(t.Context())
	require.EqualValues(t, 35, r.copy(t).last())
	at.drop()
	at.position.Store(40)
	r.copyAll(t.Context())
	require.EqualValues(t, 35, r.copy(t).last(), "an attachment that has ended proves nothing")
}

func TestEndHold_ForgetsAHoldWhenAllIsAdmittedAgain(t *testing.T) {
	t.Parallel()
	r := restoredAt(t, 7, time.Hour)
	_, err := r.attach(t.Context(), 7)
	require.ErrorIs(t, err, errHeld)
	require.NoError(t, hold.Choose(t.Context(), &r.log.kv, 7, hold.Store))
	begun, err := r.attach(t.Context(), 7)
	require.NoError(t, err)
	at := newAttachment(t.Context(), 7, begun)
	defer at.drop()
	for _, c := range []struct{ position, holds int }{{29, 1}, {30, 0}} {
		at.position.Store(int64(c.position))
		require.NoError(t, r.endHold(t.Context(), at))
		holds, err := hold.List(t.Context(), &r.log.kv)
		require.NoError(t, err)
		require.Len(t, holds, c.holds)
	}
}

// TestReplay_AnswersWhatTheOperatorChose admits one message that was answered by its own run, one that was joined to that
// run, one that was never answered and one behind the hold.
func TestReplay_AnswersWhatTheOperatorChose(t *testing.T) {
	t.Parallel()
	run := uuid.NewString()
	for choice, want := range map[hold.Choice][]bool{
		hold.Answer:       {true, true, true, true},
		hold.Store:        {false, false, false, true},
		hold.SkipAnswered: {false, false, true, true},
	} {
		t.Run(string(choice), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first, joined, open, fresh := message("webhook", "a", 1), message("webhook", "a", 2), message("webhook", "a", 3), message("webhook", "a", 4)
			log := &scriptedLog{events: []event.Lifecycle{
				{Type: event.ProcessingStarted, SKey: first.SKey, MsgUID: first.UID, RunID: run},
				{Type: event.MessageMerged, SKey: first.SKey, MsgUID: joined.UID, RunID: run},
				{Type: event.ProcessingStarted, SKey: first.SKey, MsgUID: open.UID, RunID: uuid.NewString()},
				{Type: event.ResponseSent, SKey: first.SKey, RunID: run, OutSeq: 1},
			}}
			b.Log = log
			p := session.Partition(first.SKey)
			replay, err := b.replayOf(t.Context(), p, &hold.Hold{Choice: choice, UntilSeq: 3})
			require.NoError(t, err)
			b.attached(t, p).replay = replay

			got := make([]bool, 0, len(want))
			for _, m := range []*event.Message{first, joined, open, fresh} {
				c := b.entry(t, m)
				require.NoError(t, b.prepare(t.Context(), []*candidate{c}))
				got = append(got, c.row.WantsRun)
				require.Equal(t, c.row.WantsRun, c.row.Kind == store.KindUser, "a row that nobody answers is no prompt later")
				require.True(t, json.Valid(c.row.Body))
				require.True(t, b.admit(t.Context(), []*candidate{c}))
				require.NotZero(t, b.admitted(t, m).Seq)
			}
			require.Equal(t, want, got)
		})
	}
}

func TestReplay_ACommandIsNotConfirmedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := slash("webhook", "a", 1, "status")
	b.attached(t, session.Partition(m.SKey)).replay = &replay{until: 1, all: true}
	c := b.entry(t, m)
	require.NoError(t, b.prepare(t.Context(), []*candidate{c}))
	require.Equal(t, store.KindCommand, c.row.Kind)
	require.Nil(t, c.row.Notice)
}
