package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func offsetCases() []testCase {
	return []testCase{
		{"SetOffset creates and Offsets returns what exists", offsetIsCreated},
		{"SetOffset refuses to create what exists", offsetIsNotCreatedTwice},
		{"SetOffset replaces the offset that it names", offsetIsReplaced},
		{"SetOffset refuses to replace another offset", offsetConflict},
		{"admission moves the offset and notes uid and time", admissionMovesOffset},
		{"admission without messages moves offsets", admissionOfOffsetsOnly},
		{"moved offset: nothing is committed", movedOffsetCommitsNothing},
		{"offset that does not exist has moved", missingOffsetMoved},
		{"moved offsets are all listed", movedOffsetsAreListed},
		{"two readers of one partition: one admits", readersRace},
	}
}

func offset(partition int, seq int64) store.Offset {
	at := time.Date(2026, 5, 1, 12, 0, 0, 123_000, time.UTC)
	return store.Offset{Partition: partition, Stream: "ING_3", StreamCreated: at, LastSeq: seq, LastUID: "uid", LastAt: at}
}

// attach gives the partitions an offset.
func (e *env) attach(t tb, seq int64, partitions ...int) {
	t.Helper()
	for _, p := range partitions {
		require.NoError(t, e.Store.SetOffset(t.Context(), nil, offset(p, seq)))
	}
}

func (e *env) offset(t tb, partition int) store.Offset {
	t.Helper()
	got, err := e.Store.Offsets(t.Context(), []int{partition})
	require.NoError(t, err)
	require.Len(t, got, 1)
	got[0].StreamCreated, got[0].LastAt = got[0].StreamCreated.UTC(), got[0].LastAt.UTC()
	return got[0]
}

func requireMoved(t tb, err error, partitions ...int) {
	t.Helper()
	var moved *store.OffsetMovedError
	require.ErrorAs(t, err, &moved)
	require.ElementsMatch(t, partitions, moved.Partitions)
}

func offsetIsCreated(t *testing.T, e *env) {
	e.attach(t, 10, 3, 5)
	got, err := e.Store.Offsets(t.Context(), []int{3, 4, 5})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.ElementsMatch(t, []int{3, 5}, []int{got[0].Partition, got[1].Partition})
	require.Equal(t, offset(3, 10), e.offset(t, 3))
}

func offsetIsNotCreatedTwice(t *testing.T, e *env) {
	e.attach(t, 10, 3)
	requireMoved(t, e.Store.SetOffset(t.Context(), nil, offset(3, 11)), 3)
	require.Equal(t, int64(10), e.offset(t, 3).LastSeq)
}

func offsetIsReplaced(t *testing.T, e *env) {
	e.attach(t, 10, 3)
	old, next := e.offset(t, 3), offset(3, 2)
	next.Stream, next.StreamCreated = "ING_7", next.StreamCreated.Add(time.Hour)
	require.NoError(t, e.Store.SetOffset(t.Context(), &old, next))
	require.Equal(t, next, e.offset(t, 3))
}

func offsetConflict(t *testing.T, e *env) {
	e.attach(t, 10, 3)
	for name, change := range map[string]func(*store.Offset){
		"stream":   func(o *store.Offset) { o.Stream = "ING_4" },
		"created":  func(o *store.Offset) { o.StreamCreated = o.StreamCreated.Add(time.Second) },
		"last seq": func(o *store.Offset) { o.LastSeq = 9 },
	} {
		old := offset(3, 10)
		change(&old)
		requireMoved(t, e.Store.SetOffset(t.Context(), &old, offset(3, 20)), 3)
		require.Equal(t, offset(3, 10), e.offset(t, 3), name)
	}
	missing := offset(4, 10)
	requireMoved(t, e.Store.SetOffset(t.Context(), &missing, offset(4, 20)), 4)
}

func admissionMovesOffset(t *testing.T, e *env) {
	e.attach(t, 10, 3)
	before := e.offset(t, 3)
	_, err := e.Store.Admit(t.Context(), store.Admission{
		Offsets:  []store.OffsetMove{{Partition: 3, From: 10, To: 14, UID: "m"}},
		Messages: newChat("a").users("m"),
	})
	require.NoError(t, err)
	after := e.offset(t, 3)
	require.Equal(t, int64(14), after.LastSeq)
	require.Equal(t, "m", after.LastUID)
	require.Equal(t, before.Stream, after.Stream)
	require.Equal(t, before.StreamCreated, after.StreamCreated)
	require.True(t, after.LastAt.After(before.LastAt), "the time is that of the admission")
}

func admissionOfOffsetsOnly(t *testing.T, e *env) {
	e.attach(t, 10, 3, 4)
	got, err := e.Store.Admit(t.Context(), store.Admission{Offsets: []store.OffsetMove{
		{Partition: 3, From: 10, To: 11, UID: "x"}, {Partition: 4, From: 10, To: 12, UID: "y"},
	}})
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, int64(11), e.offset(t, 3).LastSeq)
	require.Equal(t, int64(12), e.offset(t, 4).LastSeq)
}

func movedOffsetCommitsNothing(t *testing.T, e *env) {
	e.attach(t, 10, 3, 4)
	a := newChat("a")
	_, err := e.Store.Admit(t.Context(), store.Admission{
		Offsets:  []store.OffsetMove{{Partition: 3, From: 9, To: 14, UID: "m"}, {Partition: 4, From: 10, To: 14, UID: "m"}},
		Messages: a.users("m"),
		Dead:     []store.DeadLetter{{ID: newID(), Kind: "ingress", Ref: "r", Reason: "undecodable"}},
	})
	requireMoved(t, err, 3)
	require.Equal(t, offset(3, 10), e.offset(t, 3))
	require.Equal(t, offset(4, 10), e.offset(t, 4))
	e.noSession(t, a)
	require.Empty(t, e.letters(t))
}

func missingOffsetMoved(t *testing.T, e *env) {
	a := newChat("a")
	_, err := e.Store.Admit(t.Context(), store.Admission{
		Offsets:  []store.OffsetMove{{Partition: 3, From: 0, To: 1, UID: "m"}},
		Messages: a.users("m"),
	})
	requireMoved(t, err, 3)
	e.noSession(t, a)
}

func movedOffsetsAreListed(t *testing.T, e *env) {
	e.attach(t, 10, 1, 2, 3)
	_, err := e.Store.Admit(t.Context(), store.Admission{Offsets: []store.OffsetMove{
		{Partition: 3, From: 11, To: 12}, {Partition: 2, From: 10, To: 12}, {Partition: 1, From: 9, To: 12}, {Partition: 9, To: 1},
	}})
	requireMoved(t, err, 1, 3, 9)
	require.Equal(t, int64(10), e.offset(t, 2).LastSeq)
}

func readersRace(t *testing.T, e *env) {
	const readers, rounds = 6, 20
	e.attach(t, 0, 3)
	a := newChat("a")
	for round := range int64(rounds) {
		results := make([]error, readers)
		var g errgroup.Group
		for i := range readers {
			g.Go(func() error {
				_, results[i] = e.Store.Admit(t.Context(), store.Admission{
					Offsets:  []store.OffsetMove{{Partition: 3, From: round, To: round + 1, UID: "m"}},
					Messages: a.users(uids("reader", readers)[i] + uids("round", rounds)[round]),
				})
				return nil
			})
		}
		require.NoError(t, g.Wait())
		won := 0
		for _, err := range results {
			if err == nil {
				won++
				continue
			}
			requireMoved(t, err, 3)
		}
		require.Equal(t, 1, won)
	}
	require.Equal(t, int64(rounds), e.session(t, a).LastSeq, "losers admitted nothing")
}
