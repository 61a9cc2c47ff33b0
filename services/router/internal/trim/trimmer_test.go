package trim

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakes answer for the log and the store.
type fakes struct {
	info    bus.LogInfo
	young   uint64
	offsets []store.Offset
	err     error
	asked   time.Time
	trimmed map[int]uint64
	looks   int
}

func (f *fakes) LogInfo(context.Context, int) (bus.LogInfo, error) { return f.info, nil }

func (f *fakes) SeqSince(_ context.Context, _ int, t time.Time) (uint64, error) {
	f.asked = t
	return f.young, nil
}

func (f *fakes) TrimLog(_ context.Context, partition int, seq uint64) error {
	f.trimmed[partition] = seq
	return nil
}

func (f *fakes) Offsets(context.Context, []int) ([]store.Offset, error) {
	f.looks++
	return f.offsets, f.err
}

func trimmer(t *testing.T, f *fakes) *Trimmer {
	t.Helper()
	f.trimmed = map[int]uint64{}
	tr, err := New(Deps{
		Log: f, Store: f, Owned: func() []int { return []int{3, 7} }, Logger: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
	})
	require.NoError(t, err)
	return tr
}

func TestRound_RemovesWhatIsOldAndAdmittedOnceTheStreamIsNearlyFull(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)
	off := func(partition int, seq int64) store.Offset {
		return store.Offset{Partition: partition, Stream: "ING_0", StreamCreated: made.Truncate(time.Microsecond), LastSeq: seq}
	}
	foreign, recreated := off(7, 80), off(7, 80)
	foreign.Stream, recreated.StreamCreated = "ING_1", made.Add(time.Second)
	for name, c := range map[string]struct {
		bytes, limit int64
		young        uint64
		offsets      []store.Offset
		want         map[int]uint64
	}{
		"at the threshold":         {700, 1000, 50, []store.Offset{off(3, 80)}, map[int]uint64{}},
		"without a limit":          {700, 0, 50, []store.Offset{off(3, 80)}, map[int]uint64{}},
		"all old ones are read":    {701, 1000, 50, []store.Offset{off(3, 80)}, map[int]uint64{3: 49}},
		"up to the offset":         {701, 1000, 50, []store.Offset{off(3, 40), off(7, 45)}, map[int]uint64{3: 39, 7: 44}},
		"nothing is old":           {701, 1000, 10, []store.Offset{off(3, 80)}, map[int]uint64{}},
		"nothing is admitted":      {701, 1000, 50, []store.Offset{off(3, 10)}, map[int]uint64{}},
		"offset of another stream": {701, 1000, 50, []store.Offset{off(3, 80), foreign}, map[int]uint64{3: 49}},
		"stream created anew":      {701, 1000, 50, []store.Offset{recreated}, map[int]uint64{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakes{
				info:  bus.LogInfo{Stream: "ING_0", Created: made, FirstSeq: 10, LastSeq: 90, Bytes: c.bytes, MaxBytes: c.limit},
				young: c.young, offsets: c.offsets,
			}
			tr := trimmer(t, f)
			tr.now = func() time.Time { return made.Add(5 * time.Hour) }
			require.NoError(t, tr.round(t.Context()))
			require.Equal(t, c.want, f.trimmed)
			if len(c.want) > 0 {
				require.Equal(t, made.Add(4*time.Hour), f.asked)
			}
		})
	}
}

func TestTrimmer_LooksAgainAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{err: errors.New("down")}
		tr := trimmer(t, f)
		require.NoError(t, tr.Start(t.Context()))
		<-time.After(3*every + time.Second)
		synctest.Wait()
		require.NoError(t, tr.Stop(t.Context()))
		require.Equal(t, 3, f.looks)
	})
}
