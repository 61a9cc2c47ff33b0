package bustest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
)

func logTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"ReadsItsPartitionFromASequence":      readFrom,
		"ReadsWhatIsPublishedLater":           readLater,
		"ReadsAllPartitionsThroughOneChannel": readAll,
		"HoldsBackWhileTheChannelIsFull":      readHeldBack,
		"DeliversNothingAfterClose":           readClose,
		"TwoReadersReadTheSame":               readTwice,
		"EntryAtReturnsAnyMessage":            entryAt,
		"EntryAtReportsWhatIsMissing":         entryMissing,
		"LastEntryIsThatOfThePartition":       lastEntry,
		"SeqSinceFindsTheFirstAtATime":        seqSince,
		"LogInfoDescribesTheStream":           logInfo,
		"TrimLogRemovesOnlyItsPartition":      trimLog,
		"TrimLogKeepsTheSequences":            trimKeepsSequences,
		"OldLogReadsAStreamByName":            oldLog,
		"OldLogReportsAStreamThatIsGone":      oldLogGone,
	}
}

func readFrom(t *testing.T, b bus.Bus) {
	acks := publish(t, b, event(3, "a"), event(4, "x"), event(3, "b"), event(5, "y"), event(3, "c"))
	r, out := readLog(t, b, acks[1].Seq)
	first := receive(t, out)
	require.Equal(t, "b", first.ID)
	require.Equal(t, acks[2].Seq, first.Seq)
	require.Equal(t, 3, first.Partition)
	require.WithinDuration(t, time.Now(), first.At, time.Minute)
	require.Equal(t, "c", receive(t, out).ID)
	require.NoError(t, r.Err())
}

func readLater(t *testing.T, b bus.Bus) {
	_, out := readLog(t, b, 0)
	for i := range 200 {
		id := fmt.Sprint(i)
		publish(t, b, event(3, id))
		require.Equal(t, id, receive(t, out).ID)
	}
}

func readAll(t *testing.T, b bus.Bus) {
	out := make(chan bus.Entry)
	for p := range session.Partitions {
		r, err := b.ReadLog(t.Context(), p, 1, out)
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
	}
	const each = 5
	for i := range each {
		for p := range session.Partitions {
			publish(t, b, event(p, fmt.Sprintf("%d/%d", p, i)))
		}
	}
	next := make(map[int]int)
	for range each * session.Partitions {
		e := receive(t, out)
		require.Equal(t, fmt.Sprintf("%d/%d", e.Partition, next[e.Partition]), e.ID)
		next[e.Partition]++
	}
}

func readHeldBack(t *testing.T, b bus.Bus) {
	const n = 300
	out := make(chan bus.Entry)
	r, err := b.ReadLog(t.Context(), 3, 1, out)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	for i := range n {
		publish(t, b, event(3, fmt.Sprint(i)))
	}
	for i := range n {
		require.Equal(t, fmt.Sprint(i), receive(t, out).ID)
	}
}

func readClose(t *testing.T, b bus.Bus) {
	publish(t, b, event(3, "a"), event(3, "b"))
	out := make(chan bus.Entry)
	r, err := b.ReadLog(t.Context(), 3, 1, out)
	require.NoError(t, err)
	receive(t, out)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	receive(t, r.Broken())
	require.NoError(t, r.Err())
	select {
	case e := <-out:
		require.Fail(t, "received after close", "%s", e.ID)
	default:
	}
}

func readTwice(t *testing.T, b bus.Bus) {
	publish(t, b, event(3, "a"), event(3, "b"))
	_, one := readLog(t, b, 1)
	_, two := readLog(t, b, 1)
	for _, want := range []string{"a", "b"} {
		require.Equal(t, want, receive(t, one).ID)
		require.Equal(t, want, receive(t, two).ID)
	}
}

func entryAt(t *testing.T, b bus.Bus) {
	m := event(4, "b")
	m.Header = bus.Header{"k": {"v"}}
	acks := publish(t, b, event(3, "a"), m)
	e, err := b.EntryAt(t.Context(), 3, acks[1].Seq)
	require.NoError(t, err)
	require.Equal(t, m, e.Msg)
	require.Equal(t, acks[1].Seq, e.Seq)
	require.Equal(t, 4, e.Partition)
	require.WithinDuration(t, time.Now(), e.At, time.Minute)
}

func entryMissing(t *testing.T, b bus.Bus) {
	_, err := b.EntryAt(t.Context(), 3, 7)
	require.ErrorIs(t, err, bus.ErrNotFound)
}

func lastEntry(t *testing.T, b bus.Bus) {
	publish(t, b, event(4, "x"))
	_, err := b.LastEntry(t.Context(), 3)
	require.ErrorIs(t, err, bus.ErrNotFound)
	acks := publish(t, b, event(3, "a"), event(3, "b"), event(4, "y"))
	e, err := b.LastEntry(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, "b", e.ID)
	require.Equal(t, acks[1].Seq, e.Seq)
}

func seqSince(t *testing.T, b bus.Bus) {
	since := func(at time.Time) uint64 {
		seq, err := b.SeqSince(t.Context(), 3, at)
		require.NoError(t, err)
		return seq
	}
	require.Equal(t, uint64(1), since(time.Now().Add(-time.Hour)))
	acks := publish(t, b, event(3, "a"), event(4, "b"), event(3, "c"))
	middle, err := b.EntryAt(t.Context(), 3, acks[1].Seq)
	require.NoError(t, err)
	require.Equal(t, acks[0].Seq, since(time.Now().Add(-time.Hour)))
	require.Equal(t, acks[1].Seq, since(middle.At))
	require.Equal(t, acks[2].Seq, since(middle.At.Add(1)))
	require.Equal(t, acks[2].Seq+1, since(time.Now().Add(time.Hour)))
}

func logInfo(t *testing.T, b bus.Bus) {
	before, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, bus.IngestStream(3, 1), before.Stream)
	require.Zero(t, before.LastSeq)
	require.WithinDuration(t, time.Now(), before.Created, time.Minute)
	publish(t, b, event(3, "a"), event(4, "b"))
	after, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Positive(t, after.Bytes)
	require.Greater(t, after.MaxBytes, after.Bytes)
	require.Equal(t, bus.LogInfo{
		Stream: before.Stream, Created: before.Created, FirstSeq: 1, LastSeq: 2, Bytes: after.Bytes, MaxBytes: before.MaxBytes,
	}, after)
}

func trimLog(t *testing.T, b bus.Bus) {
	acks := publish(t, b, event(3, "a"), event(4, "x"), event(3, "b"), event(3, "c"), event(4, "y"))
	before, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.NoError(t, b.TrimLog(t.Context(), 3, acks[2].Seq))
	for i, want := range []string{"", "x", "", "c", "y"} {
		e, err := b.EntryAt(t.Context(), 3, acks[i].Seq)
		if want == "" {
			require.ErrorIs(t, err, bus.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, e.ID)
	}
	after, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Less(t, after.Bytes, before.Bytes)
	_, out := readLog(t, b, 1)
	require.Equal(t, "c", receive(t, out).ID)
}

func trimKeepsSequences(t *testing.T, b bus.Bus) {
	acks := publish(t, b, event(3, "a"), event(3, "b"))
	require.NoError(t, b.TrimLog(t.Context(), 3, acks[1].Seq))
	require.NoError(t, b.TrimLog(t.Context(), 3, acks[1].Seq))
	info, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, acks[1].Seq, info.LastSeq)
	require.Equal(t, acks[1].Seq+1, info.FirstSeq)
	require.Equal(t, acks[1].Seq+1, publish(t, b, event(3, "c"))[0].Seq)
}

func oldLog(t *testing.T, b bus.Bus) {
	acks := publish(t, b, event(3, "a"), event(4, "x"), event(3, "b"))
	old, err := b.OldLog(t.Context(), 3, acks[0].Stream)
	require.NoError(t, err)
	now, err := b.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	info, err := old.LogInfo(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, now, info)
	e, err := old.EntryAt(t.Context(), 3, acks[2].Seq)
	require.NoError(t, err)
	require.Equal(t, "b", e.ID)
	out := make(chan bus.Entry, 16)
	r, err := old.ReadLog(t.Context(), 3, 1, out)
	require.NoError(t, err)
	require.Equal(t, "a", receive(t, out).ID)
	require.Equal(t, "b", receive(t, out).ID)
	require.NoError(t, r.Close())
}

func oldLogGone(t *testing.T, b bus.Bus) {
	_, err := b.OldLog(t.Context(), 3, bus.IngestStream(63, 64))
	require.ErrorIs(t, err, bus.ErrNotFound)
}
