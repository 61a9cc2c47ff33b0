package poll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/services/ingress/internal/poll"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

const patience = 30 * time.Second

var errNo = errors.New("no")

// feed hands out updates until they are confirmed.
type feed struct {
	mu      sync.Mutex
	pending []poll.Update
	offsets []int64
	opened  int
	errs    []error
	taken   []int64
}

func (f *feed) Open(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return nil
}

func (f *feed) Fetch(_ context.Context, offset int64, _ time.Duration) ([]poll.Update, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offsets = append(f.offsets, offset)
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	if n := len(f.pending); n > 0 && offset <= f.pending[n-1].ID+10 { // one far beyond confirms nothing
		f.pending = slices.DeleteFunc(f.pending, func(u poll.Update) bool { return u.ID < offset })
	}
	return slices.Clone(f.pending), nil
}

// add queues an update, whose first tries fail.
func (f *feed) add(id int64, lane string, failures int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var tries atomic.Int64
	f.pending = append(f.pending, poll.Update{ID: id, Lane: lane, Take: func(context.Context) error {
		if tries.Add(1) <= int64(failures) {
			return errNo
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.taken = append(f.taken, id)
		return nil
	}})
}

func (f *feed) seen() (offsets, taken []int64, opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Compact(slices.Clone(f.offsets)), slices.Clone(f.taken), f.opened
}

func (f *feed) awaitOffset(t *testing.T, offset int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		offsets, _, _ := f.seen()
		return len(offsets) > 0 && offsets[len(offsets)-1] == offset
	}, patience, time.Millisecond, "%d", offset)
}

func timing() poll.Timing {
	return poll.Timing{
		Watch: 5 * time.Millisecond, Renew: 20 * time.Millisecond, Expire: time.Hour, Margin: time.Minute,
		Write: 5 * time.Second, LongPoll: time.Second, Gap: time.Millisecond, Retry: time.Millisecond, MaxRetry: 5 * time.Millisecond,
	}
}

// run polls until the test ends, or until stop is called.
func run(t *testing.T, buckets poll.Buckets, f *feed) (stop func()) {
	t.Helper()
	return runLogged(t, buckets, f, slog.DiscardHandler)
}

func runLogged(t *testing.T, buckets poll.Buckets, f *feed, log slog.Handler) (stop func()) {
	t.Helper()
	p := poll.New(poll.Deps{Buckets: buckets, Key: "k", Feed: f, Logger: slog.New(log), Timing: timing()})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { p.Run(ctx) })
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}

func TestPoll_ConfirmsNothingFromTheFirstFailureOn(t *testing.T) {
	t.Parallel()
	f := &feed{}
	for id, failures := range []int{0, 0, 3, 0, 0} {
		f.add(int64(10+id), fmt.Sprint("lane", id%2), failures)
	}
	run(t, servicetest.New(t).Bus, f)
	f.awaitOffset(t, 15)
	offsets, taken, _ := f.seen()
	require.Equal(t, []int64{0, 12, 15}, offsets)
	require.ElementsMatch(t, []int64{10, 11, 12, 13, 14}, taken, "what succeeded behind the failure is not taken again")
	var lane []int64
	for _, id := range taken {
		if id%2 == 0 {
			lane = append(lane, id)
		}
	}
	require.Equal(t, []int64{10, 12, 14}, lane, "nothing overtakes in a lane")
}

func TestPoll_UpdatesWithoutALaneHoldUpNothing(t *testing.T) {
	t.Parallel()
	f := &feed{}
	held := make(chan struct{})
	f.pending = []poll.Update{{ID: 1, Take: func(context.Context) error { <-held; return nil }}}
	f.add(2, "", 0)
	f.add(3, "a", 0)
	run(t, servicetest.New(t).Bus, f)
	require.Eventually(t, func() bool { _, taken, _ := f.seen(); return len(taken) == 2 }, patience, time.Millisecond)
	offsets, _, _ := f.seen()
	require.Equal(t, []int64{0}, offsets)
	close(held)
	f.awaitOffset(t, 4)
}

func TestPoll_GoesOnWhereIDsBeginAnewAndInAnyOrder(t *testing.T) {
	t.Parallel()
	f := &feed{}
	f.add(101, "a", 0)
	f.add(103, "a", 0)
	f.add(102, "a", 0)
	run(t, servicetest.New(t).Bus, f)
	f.awaitOffset(t, 104)
	f.add(7, "a", 0) // a week later
	f.awaitOffset(t, 8)
	_, taken, _ := f.seen()
	require.Equal(t, []int64{101, 103, 102, 7}, taken)
}

func TestPoll_StopsForAConflictAndComesBack(t *testing.T) {
	t.Parallel()
	f := &feed{errs: []error{errNo, poll.ErrConflict, &poll.WaitError{After: time.Millisecond, Err: errNo}}}
	f.add(1, "a", 0)
	run(t, servicetest.New(t).Bus, f)
	f.awaitOffset(t, 2)
	_, taken, opened := f.seen()
	require.Equal(t, []int64{1}, taken)
	require.Equal(t, 2, opened, "each ownership begins anew")
}

func TestPoll_TheNextOwnerGoesOnAtTheStoredOffset(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	first, second := &feed{}, &feed{}
	first.add(5, "a", 0)
	stop := run(t, env.Bus, first)
	first.awaitOffset(t, 6)
	run(t, env.Connect(t), second)
	stop()
	second.awaitOffset(t, 6)
	offsets, _, _ := second.seen()
	require.Equal(t, []int64{6}, offsets)
}

// forgetful loses the answers of some writes that took place.
type forgetful struct {
	bus.KV
	poll.Buckets
	writes atomic.Int64
}

func (f *forgetful) OpenKV(ctx context.Context, bucket string) (bus.KV, error) {
	kv, err := f.Buckets.OpenKV(ctx, bucket)
	f.KV = kv
	return f, err
}

func (f *forgetful) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	written, err := f.KV.Put(ctx, key, value, revision)
	if err == nil && f.writes.Add(1)%3 != 0 {
		return 0, bus.ErrUnavailable
	}
	return written, err
}

func TestPoll_RecognisesItsOwnWritesWhoseAnswersWereLost(t *testing.T) {
	t.Parallel()
	f := &feed{}
	run(t, &forgetful{Buckets: servicetest.New(t).Bus}, f)
	for id := int64(1); id <= 20; id++ {
		f.add(id, "a", 0)
		f.awaitOffset(t, id+1)
	}
	_, taken, opened := f.seen()
	require.Len(t, taken, 20)
	require.Equal(t, 1, opened, "it owned the feed all the time")
}

// watching waits for one message of a log.
type watching struct {
	slog.Handler
	message string
	once    sync.Once
	seen    chan struct{}
}

func (w *watching) Enabled(context.Context, slog.Level) bool { return true }

func (w *watching) Handle(_ context.Context, r slog.Record) error {
	if r.Message == w.message {
		w.once.Do(func() { close(w.seen) })
	}
	return nil
}

func TestPoll_AnOwnerThatWasOverruledStops(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	f, log := &feed{}, &watching{Handler: slog.DiscardHandler, message: "polling ended", seen: make(chan struct{})}
	f.add(1, "a", 0)
	runLogged(t, env.Bus, f, log)
	f.awaitOffset(t, 2)
	kv, err := env.Bus.OpenKV(t.Context(), poll.Bucket)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, revision, err := kv.Get(t.Context(), "k")
		require.NoError(t, err)
		_, err = kv.Put(t.Context(), "k", []byte(`{"owner":"another","offset":9}`), revision)
		return err == nil
	}, patience, time.Millisecond)
	<-log.seen // with the next renewal, or when it moves the offset
	f.add(2, "a", 0)
	_, taken, _ := f.seen()
	require.Equal(t, []int64{1}, taken)
	raw, _, err := kv.Get(t.Context(), "k")
	require.NoError(t, err)
	require.JSONEq(t, `{"owner":"another","offset":9}`, string(raw))
}
