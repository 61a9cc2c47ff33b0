package slot

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
	"github.com/hermes-runtime/hermes/services/worker/internal/stream"
)

// answering is a runner whose runs do what a function says. The wall cap is that of the default profile.
type answering func(held Held) Ended

func (f answering) Run(held Held) Ended      { return f(held) }
func (answering) Limit(string) time.Duration { return 31 * time.Minute }

// faultyStore is a memory store that may be out of reach, and whose claims may fail with and without effect.
type faultyStore struct {
	*memstore.Store
	down atomic.Bool
	// claim answers the claims, nil: the store does.
	claim func(reqs []store.ClaimRequest) ([]store.Claimed, error)
}

func (s *faultyStore) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claimed, error) {
	if s.claim != nil {
		return s.claim(reqs)
	}
	return s.Store.Claim(ctx, reqs)
}

func (s *faultyStore) Stops(ctx context.Context, fences []store.Fence) ([]store.StopState, error) {
	if s.down.Load() {
		return nil, store.ErrUnavailable
	}
	return s.Store.Stops(ctx, fences)
}

// bench is a worker of which only the runs are made up.
type bench struct {
	*Puller
	mem    *faultyStore
	bus    *memBus
	leases *memLeases
	run    answering
}

// newBench starts nothing yet.
func newBench(t *testing.T, cfg Config, leases lease.Sessions, clock boottime.Clock) *bench {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	b := &bench{mem: &faultyStore{Store: memstore.New()}, bus: newMemBus()}
	b.leases, _ = leases.(*memLeases)
	metrics, err := NewMetrics(sdkmetric.NewMeterProvider().Meter("test"))
	require.NoError(t, err)
	cfg.WorkerID, cfg.Pools, cfg.Slots = "worker-1", []string{"default"}, 4
	b.Puller, err = New(cfg, Deps{
		Bus: b.bus, Leases: leases, Store: b.mem, Control: control.NewListenerWithClock(b.bus, b.mem, logger, clock),
		Streams: stream.NewHub(b.bus, logger), Runner: answering(func(held Held) Ended { return b.run(held) }),
		Metrics: metrics, Tracer: noop.NewTracerProvider().Tracer("test"), Logger: logger,
	})
	require.NoError(t, err)
	return b
}

func (b *bench) start(t *testing.T) {
	t.Helper()
	require.NoError(t, b.Control.Start(t.Context()))
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, b.Stop(ctx))
		require.NoError(t, b.Control.Stop(ctx))
	})
}

// bubble is a started bench on virtual time.
func bubble(t *testing.T, cfg Config, run answering) *bench {
	t.Helper()
	start := time.Now()
	b := newBench(t, cfg, newMemLeases(), func() time.Duration { return time.Since(start) })
	b.run = run
	b.start(t)
	return b
}

// send admits a message and rings.
func (b *bench) send(t *testing.T, skey string) store.Admitted {
	t.Helper()
	a := b.admit(t, skey)
	b.ring(t.Context(), b.newStart("default", skey, a.Gen, a.RunID), "")
	return a
}

func (b *bench) admit(t *testing.T, skey string) store.Admitted {
	t.Helper()
	admitted, err := b.mem.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: skey, Tenant: "default", SessionKey: skey, UID: uuid.NewString(), Kind: store.KindUser, Body: []byte(`{}`), WantsRun: true,
		SessionID: uuid.New(), RunID: uuid.New(),
	}}})
	require.NoError(t, err)
	return admitted[0]
}

func (b *bench) session(t *testing.T, skey string) store.Session {
	t.Helper()
	s, err := b.mem.Session(t.Context(), skey)
	require.NoError(t, err)
	return s
}

// finish ends a run with one answer.
func (b *bench) finish(held Held) error {
	return held.Handle.Write(func(f store.Fence) error {
		results, err := b.mem.Finish(context.Background(), []store.Finish{{
			Fence: f, RunGen: held.FirstGen, From: 1, To: held.LastSeq, State: store.RunDone, NextRunID: uuid.New(),
			Replies: []store.NewReply{{Platform: "webhook", Target: json.RawMessage(`{}`), Parts: json.RawMessage(`[]`)}},
		}})
		if err == nil && results[0].Outcome != store.Finished {
			err = agent.ErrFenced
		}
		return err
	})
}

// requireAnswered: the run has ended, once, and its session is free.
func (b *bench) requireAnswered(t *testing.T, skey string, run uuid.UUID, gen int64) {
	t.Helper()
	r, err := b.mem.Run(t.Context(), run)
	require.NoError(t, err)
	require.Equal(t, store.RunDone, r.State)
	s := b.session(t, skey)
	require.Equal(t, store.Idle, s.State)
	require.Equal(t, gen, s.Gen)
	replies, err := b.mem.RunReplies(t.Context(), run)
	require.NoError(t, err)
	require.Len(t, replies, 1)
}

// command asks the worker and returns its answer.
func (b *bench) command(t *testing.T, c *runv1.WorkerCommand) string {
	t.Helper()
	data, err := proto.Marshal(c)
	require.NoError(t, err)
	return b.commandData(t, data)
}

func (b *bench) commandData(t *testing.T, data []byte) string {
	t.Helper()
	answer, err := b.bus.Request(t.Context(), bus.Msg{Subject: bus.WorkerSubject("worker-1"), Data: data})
	require.NoError(t, err)
	return string(answer.Data)
}

func TestWorkerID_MustBeAToken(t *testing.T) {
	t.Parallel()
	_, err := New(Config{WorkerID: "worker.1"}, Deps{})
	require.ErrorContains(t, err, "worker id")
}

func TestCommand_KillEndsTheHoldOfItsRunAndOfNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		causes := map[uuid.UUID]error{}
		release := make(chan struct{})
		b := bubble(t, Config{}, func(held Held) Ended {
			select {
			case <-held.Handle.Hold().Done():
			case <-release:
			}
			mu.Lock()
			defer mu.Unlock()
			causes[held.RunID] = context.Cause(held.Handle.Hold())
			return Ended{}
		})
		killed, other := b.send(t, "a"), b.send(t, "b")
		synctest.Wait()
		require.Len(t, b.leases.all(), 2)
		kill := &runv1.WorkerCommand{Kind: runv1.WorkerCommandKind_WORKER_COMMAND_KIND_KILL_RUN, RunId: killed.RunID.String()}
		require.Equal(t, "ok", b.command(t, kill))
		synctest.Wait()
		require.Equal(t, map[uuid.UUID]error{killed.RunID: agent.ErrFenced}, causes)
		require.Contains(t, b.leases.all(), "b")
		require.NotContains(t, b.leases.all(), "a", "the session is free at once")
		require.Equal(t, "run "+killed.RunID.String()+" is not here", b.command(t, kill))
		close(release)
		synctest.Wait()
		require.NoError(t, causes[other.RunID])
	})
}

func TestCommand_ThatCannotBeCarriedOutIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t, Config{}, nil)
		require.Contains(t, b.commandData(t, []byte("\xff")), "read command")
		require.Contains(t, b.command(t, &runv1.WorkerCommand{Kind: runv1.WorkerCommandKind_WORKER_COMMAND_KIND_CONFIG}), "not supported")
		require.Contains(t, b.command(t, &runv1.WorkerCommand{
			Kind: runv1.WorkerCommandKind_WORKER_COMMAND_KIND_KILL_RUN, RunId: "r",
		}), "run id")
		require.NoError(t, b.Ready(t.Context()))
	})
}

func TestCommand_DrainHandsOverAndTheWorkerStaysUpWithoutWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		left := make(chan time.Time, 1)
		b = bubble(t, Config{Grace: 100 * time.Second}, func(held Held) Ended {
			<-held.Handle.Work().Done()
			var gen int64
			err := held.Handle.Write(func(f store.Fence) error {
				results, err := b.mem.Handover(context.Background(), []store.Checkpoint{{Fence: f, RunGen: held.FirstGen}})
				if err == nil {
					gen, err = results[0].Gen, results[0].Err
				}
				return err
			})
			if err != nil {
				return Ended{}
			}
			left <- time.Now()
			return Ended{NextRun: held.RunID, NextGen: gen, HandedOver: true}
		})
		run := b.send(t, "a")
		synctest.Wait()
		begun := time.Now()
		require.Equal(t, "ok", b.command(t, &runv1.WorkerCommand{Kind: runv1.WorkerCommandKind_WORKER_COMMAND_KIND_DRAIN}))
		require.Equal(t, control.ErrDraining, b.Ready(t.Context()))
		require.True(t, b.Control.All()[0].Leaving())
		synctest.Wait()
		require.True(t, b.mem.Beats()[0].Draining)
		require.Equal(t, 60*time.Second, (<-left).Sub(begun), "one that does not come to a boundary leaves where it is")
		synctest.Wait()
		s := b.session(t, "a")
		require.Equal(t, []any{store.Queued, run.Gen + 1, run.RunID}, []any{s.State, s.Gen, s.RunID})
		require.Empty(t, b.leases.all())
		require.Len(t, b.bus.queue, 1, "it is rung for others, and this worker does not take it")
		<-time.After(time.Hour)
		synctest.Wait()
		require.Len(t, b.bus.queue, 1)
		require.Equal(t, "ok", b.command(t, &runv1.WorkerCommand{Kind: runv1.WorkerCommandKind_WORKER_COMMAND_KIND_DRAIN}), "twice is once")
	})
}

func TestClaim_WhoseAnswerWasLostIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		var attempts []int
		b = bubble(t, Config{}, func(held Held) Ended {
			attempts = append(attempts, held.Attempts)
			if err := b.finish(held); err != nil {
				panic(err)
			}
			return Ended{}
		})
		calls := 0
		b.mem.claim = func(reqs []store.ClaimRequest) ([]store.Claimed, error) {
			claimed, err := b.mem.Store.Claim(context.Background(), reqs)
			if calls++; calls == 1 {
				return nil, store.ErrUnavailable
			}
			return claimed, err
		}
		run := b.send(t, "a")
		<-time.After(5 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, calls)
		require.Len(t, attempts, 1, "it runs once")
		b.requireAnswered(t, "a", run.RunID, run.Gen+1)
		require.Empty(t, b.leases.all())
		acked, naked := b.bus.settled()
		require.Equal(t, []int{1, 0}, []int{acked, naked})
	})
}

func TestClaim_OfUnknownOutcomeThatSomebodyElseWonIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t, Config{}, func(Held) Ended { panic("not ours") })
		calls := 0
		b.mem.claim = func(reqs []store.ClaimRequest) ([]store.Claimed, error) {
			if calls++; calls > 1 {
				return b.mem.Store.Claim(context.Background(), reqs)
			}
			other := reqs[0]
			other.Owner = "worker-2/n"
			if _, err := b.mem.Store.Claim(context.Background(), []store.ClaimRequest{other}); err != nil {
				return nil, err
			}
			return nil, store.ErrUnavailable
		}
		run := b.send(t, "a")
		<-time.After(5 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, calls)
		s := b.session(t, "a")
		require.Equal(t, []any{run.Gen, "worker-2/n"}, []any{s.Gen, s.Owner})
		require.Empty(t, b.leases.all())
		acked, naked := b.bus.settled()
		require.Equal(t, []int{1, 0}, []int{acked, naked})
	})
}
