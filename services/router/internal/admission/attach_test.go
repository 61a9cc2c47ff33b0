package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestJudge_ComparesTheOffsetWithTheStream(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)
	info := bus.LogInfo{Stream: "ING_1", Created: made, FirstSeq: 10, LastSeq: 50}
	off := store.Offset{Stream: "ING_1", StreamCreated: made.Truncate(time.Microsecond), LastSeq: 30, LastUID: "u30"}
	with := func(change func(*store.Offset)) *store.Offset {
		o := off
		change(&o)
		return &o
	}
	for name, c := range map[string]struct {
		off  *store.Offset
		info bus.LogInfo
		head string
		want verdict
	}{
		"never read":          {nil, info, "", begin},
		"as it was":           {&off, info, "u30", resume},
		"head has left":       {&off, info, "", resume},
		"at the end":          {with(func(o *store.Offset) { o.LastSeq = 50 }), info, "", resume},
		"just before first":   {with(func(o *store.Offset) { o.LastSeq = 9 }), info, "", resume},
		"empty stream":        {with(func(o *store.Offset) { o.LastSeq = 0 }), bus.LogInfo{Stream: "ING_1", Created: made}, "", resume},
		"created anew":        {with(func(o *store.Offset) { o.StreamCreated = made.Add(time.Second) }), info, "u30", lost},
		"lost its tail":       {with(func(o *store.Offset) { o.LastSeq = 51 }), info, "", lost},
		"tail written again":  {&off, info, "another", lost},
		"overrun":             {with(func(o *store.Offset) { o.LastSeq = 8 }), info, "", overrun},
		"overrun everything":  {with(func(o *store.Offset) { o.LastSeq = 8 }), bus.LogInfo{Stream: "ING_1", Created: made, FirstSeq: 51, LastSeq: 50}, "", overrun},
		"all read, all gone ": {with(func(o *store.Offset) { o.LastSeq = 50 }), bus.LogInfo{Stream: "ING_1", Created: made, FirstSeq: 51, LastSeq: 50}, "", resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, judge(c.off, c.info, c.head))
		})
	}
}

// scriptedLog answers what a test sets.
type scriptedLog struct {
	Log
	info    bus.LogInfo
	missing bool
	head    bus.Entry
	since   uint64
	asked   time.Time
	// last is the newest message of the partition, old the stream that held it before.
	last bus.Entry
	old  *scriptedLog
	kv   mapKV
	// events are what ScanEvents finds.
	events []event.Lifecycle
}

func (l *scriptedLog) LogInfo(context.Context, int) (bus.LogInfo, error) {
	if l.missing {
		return bus.LogInfo{}, bus.ErrNotFound
	}
	return l.info, nil
}

func (l *scriptedLog) EnsureStreams(context.Context) error {
	l.missing = false
	return nil
}

func (l *scriptedLog) EntryAt(context.Context, int, uint64) (bus.Entry, error) {
	if l.head.Seq == 0 {
		return bus.Entry{}, bus.ErrNotFound
	}
	return l.head, nil
}

func (l *scriptedLog) SeqSince(_ context.Context, _ int, at time.Time) (uint64, error) {
	l.asked = at
	return l.since, nil
}

func (l *scriptedLog) LastEntry(context.Context, int) (bus.Entry, error) {
	if l.last.Seq == 0 {
		return bus.Entry{}, bus.ErrNotFound
	}
	return l.last, nil
}

func (l *scriptedLog) OldLog(_ context.Context, _ int, stream string) (bus.Log, error) {
	if l.old == nil || l.old.info.Stream != stream {
		return nil, bus.ErrNotFound
	}
	return l.old, nil
}

func (l *scriptedLog) OpenKV(context.Context, string) (bus.KV, error) { return &l.kv, nil }

func (l *scriptedLog) ScanEvents(_ context.Context, _ int, eventType string, _ time.Time, f func(bus.Msg) error) error {
	for i := range l.events {
		if string(l.events[i].Type) != eventType {
			continue
		}
		data, err := event.EncodeLifecycle(&l.events[i])
		if err != nil {
			return err
		}
		if err := f(bus.Msg{Data: data}); err != nil {
			return err
		}
	}
	return nil
}

// mapKV is a map for one goroutine; the zero value is empty.
type mapKV struct {
	values map[string][]byte
	revs   map[string]uint64
}

func (m *mapKV) Get(_ context.Context, key string) ([]byte, uint64, error) {
	if m.revs[key] == 0 {
		return nil, 0, bus.ErrNotFound
	}
	return m.values[key], m.revs[key], nil
}

func (m *mapKV) Put(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if m.revs[key] != revision {
		return 0, bus.ErrConflict
	}
	if m.values == nil {
		m.values, m.revs = map[string][]byte{}, map[string]uint64{}
	}
	m.values[key] = value
	m.revs[key]++
	return m.revs[key], nil
}

func TestAttach_MovesTheOffsetAndSaysWhereToBegin(t *testing.T) {
	t.Parallel()
	const p = 7
	made, admittedAt := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	info := bus.LogInfo{Stream: "ING_1", Created: made, FirstSeq: 10, LastSeq: 50}
	read := func(seq int64, uid string, created time.Time) *store.Offset {
		return &store.Offset{Partition: p, Stream: "ING_1", StreamCreated: created, LastSeq: seq, LastUID: uid, LastAt: admittedAt}
	}
	for name, c := range map[string]struct {
		off  *store.Offset
		log  scriptedLog
		from int64
	}{
		"first time":                  {nil, scriptedLog{info: info}, 10},
		"first time, empty stream":    {nil, scriptedLog{info: bus.LogInfo{Stream: "ING_1", Created: made}}, 1},
		"missing stream is created":   {nil, scriptedLog{info: info, missing: true}, 10},
		"goes on":                     {read(30, "u", made), scriptedLog{info: info, head: bus.Entry{Msg: bus.Msg{ID: "u"}, Seq: 30}}, 31},
		"created anew":                {read(30, "u", made.Add(-time.Hour)), scriptedLog{info: info, since: 20}, 20},
		"created anew, all is newer":  {read(30, "u", made.Add(-time.Hour)), scriptedLog{info: info, since: 1}, 10},
		"created anew, never read":    {&store.Offset{Partition: p, Stream: "ING_1", LastSeq: 3}, scriptedLog{info: info, since: 99}, 10},
		"tail written again":          {read(30, "u", made), scriptedLog{info: info, since: 25, head: bus.Entry{Msg: bus.Msg{ID: "v"}, Seq: 30}}, 25},
		"tail lost":                   {read(60, "u", made), scriptedLog{info: info, since: 51}, 51},
		"dropped before it was read":  {read(3, "u", made), scriptedLog{info: info}, 10},
		"message at the offset moved": {read(30, "u", made), scriptedLog{info: info}, 31},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Log = &c.log
			if c.off != nil {
				require.NoError(t, b.store.Store.SetOffset(t.Context(), nil, *c.off))
			}
			got, err := b.attach(t.Context(), p)
			require.NoError(t, err)
			require.Equal(t, start{log: &c.log, stream: "ING_1", created: made, position: c.from - 1, from: c.from}, got)
			offs, err := b.store.Offsets(t.Context(), []int{p})
			require.NoError(t, err)
			require.Equal(t, c.from-1, offs[0].LastSeq)
			require.Equal(t, made, offs[0].StreamCreated)
			if !c.log.asked.IsZero() {
				require.Equal(t, admittedAt.Add(-10*time.Minute), c.log.asked)
			}
		})
	}
}

func TestAttach_ReadsTheOldStreamToItsEndBeforeItGoesOver(t *testing.T) {
	t.Parallel()
	const p = 7
	made, newMade := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 4, 0, 0, 0, 0, time.UTC)
	now := bus.LogInfo{Stream: "ING_3", Created: newMade, FirstSeq: 5, LastSeq: 9}
	before := func(seq int64) store.Offset {
		return store.Offset{Partition: p, Stream: "ING_0", StreamCreated: made, LastSeq: seq, LastUID: "u", LastAt: made}
	}
	old := func(last uint64) *scriptedLog {
		return &scriptedLog{info: bus.LogInfo{Stream: "ING_0", Created: made, FirstSeq: 1, LastSeq: 80}, since: 21, last: bus.Entry{Seq: last}}
	}
	recreated := old(40)
	recreated.info.Created = made.Add(time.Hour)
	for name, c := range map[string]struct {
		off    store.Offset
		old    *scriptedLog
		stream string
		from   int64
		until  int64
	}{
		"messages are left":         {before(30), old(40), "ING_0", 31, 40},
		"read to the end":           {before(40), old(40), "ING_3", 5, 0},
		"only others are left":      {before(30), old(0), "ING_3", 5, 0},
		"gone":                      {before(30), nil, "ING_3", 5, 0},
		"created anew, then filled": {before(30), recreated, "ING_0", 21, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Log = &scriptedLog{info: now, old: c.old}
			require.NoError(t, b.store.Store.SetOffset(t.Context(), nil, c.off))
			got, err := b.attach(t.Context(), p)
			require.NoError(t, err)
			require.Equal(t, c.stream, got.stream)
			require.Equal(t, c.from, got.from)
			require.Equal(t, c.until, got.until)
			offs, err := b.store.Offsets(t.Context(), []int{p})
			require.NoError(t, err)
			require.Equal(t, c.stream, offs[0].Stream)
			require.Equal(t, c.from-1, offs[0].LastSeq)
			require.Equal(t, got.created, offs[0].StreamCreated)
		})
	}
}

func TestAttach_FailsIfAnotherRouterMovesTheOffsetMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Log = &scriptedLog{info: bus.LogInfo{Stream: "ING_0", FirstSeq: 1, LastSeq: 5}}
	b.store.offset = func() error { return &store.OffsetMovedError{Partitions: []int{7}} }
	_, err := b.attach(t.Context(), 7)
	var moved *store.OffsetMovedError
	require.ErrorAs(t, err, &moved)
}

func TestMeasureLag_LooksAtEveryPartitionThatIsRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Log = &scriptedLog{info: bus.LogInfo{Stream: "ING_0", FirstSeq: 1, LastSeq: 50}}
	for _, p := range []int{3, 4} {
		r := &reader{Admitter: b.Admitter, partition: p}
		r.current.Store(b.attached(t, p))
		b.readers[p] = r
	}
	b.readers[5] = &reader{Admitter: b.Admitter, partition: 5} // not attached yet
	b.measureLag(t.Context())
	require.Equal(t, map[int]int64{3: 50, 4: 50}, b.metrics.lags)
	b.at[4].delivered.Store(40)
	b.measureLag(t.Context())
	require.Equal(t, map[int]int64{3: 0, 4: 50}, b.metrics.lags)
}
