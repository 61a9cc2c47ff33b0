package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/pkg/turn"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
	"github.com/hermes-runtime/hermes/services/worker/internal/agentcache"
	"github.com/hermes-runtime/hermes/services/worker/internal/historycache"
	"github.com/hermes-runtime/hermes/services/worker/internal/slot"
)

// overrun is how long beyond its wall time a run may still write: after that it may be taken over.
const overrun = 60 * time.Second

// Store is the part of the store that runs read.
type Store interface {
	store.Transcript
	RunMessages(ctx context.Context, id uuid.UUID) ([]store.Message, error)
	RunReplies(ctx context.Context, id uuid.UUID) ([]store.Reply, error)
	InboxAfter(ctx context.Context, skey string, seq int64) ([]store.InboxRow, error)
	Session(ctx context.Context, skey string) (store.Session, error)
}

// Objects hold what is too large for the inbox.
type Objects interface {
	GetObject(ctx context.Context, name string) ([]byte, error)
}

// Taker gives a run that has failed to its next attempt, or gives it up.
type Taker interface {
	Take(ctx context.Context, run store.ActiveRun, reason string, delay time.Duration) (takeover.Result, error)
}

// Committer writes for runs; while the store is unavailable its methods try again until ctx ends.
type Committer interface {
	Checkpoint(ctx context.Context, cp store.Checkpoint) (store.CheckpointResult, error)
	Finish(ctx context.Context, f store.Finish) (store.FinishResult, error)
	Handover(ctx context.Context, cp store.Checkpoint) (gen int64, err error)
	Suspend(ctx context.Context, s store.Suspension) (store.SuspendResult, error)
}

// Emitter takes lifecycle events; it never blocks.
type Emitter interface {
	Emit(ev event.Lifecycle)
}

// Deps are what code supplies.
type Deps struct {
	// Models by provider name.
	Models map[string]llm.Model
	// Executor may be nil: then nobody has tools.
	Executor  tool.Executor
	Store     Store
	Committer Committer
	Objects   Objects
	Takeover  Taker
	Bus       bus.Publisher
	Events    Emitter
	Tracer    trace.Tracer
	Meter     metric.Meter
	Logger    *slog.Logger
	// Now is the wall clock.
	Now func() time.Time
}

// Runtime works on runs. It is safe for concurrent use.
type Runtime struct {
	Deps
	profiles map[string]*profile
	pipeline *turn.Pipeline
	turns    metric.Float64Histogram
	// calls are the tool calls that run, also those that their runs have abandoned.
	calls *sync.WaitGroup
	// agents and histories are those of conversations that were served a moment ago.
	agents    *agentCache
	histories *historycache.Cache
}

var _ slot.Runner = (*Runtime)(nil)

// New returns a runtime for the profiles of cfg.
func New(cfg config.Config, deps Deps) (*Runtime, error) {
	calls := new(sync.WaitGroup)
	profiles, errProfiles := newProfiles(cfg, deps, calls)
	pipeline, errPipeline := turn.New(turn.Config{}, turn.Deps{Tracer: deps.Tracer, Meter: deps.Meter})
	turns, errTurns := deps.Meter.Float64Histogram("hermes_turn_duration_seconds", metric.WithUnit("s"),
		metric.WithDescription("Time from the claim of a run to its commit, by how it ended."))
	if err := errors.Join(errProfiles, errPipeline, errTurns); err != nil {
		return nil, fmt.Errorf("worker runtime: %w", err)
	}
	return &Runtime{
		Deps: deps, profiles: profiles, pipeline: pipeline, turns: turns, calls: calls,
		agents:    agentcache.New[*agent.Loop](agentcache.DefaultOptions(), nil),
		histories: historycache.New(historycache.DefaultOptions()),
	}, nil
}

// Start does nothing: a runtime works for its callers. It makes the runtime a daemon.Component.
func (rt *Runtime) Start(context.Context) error { return nil }

// callsWait bounds the wait for tool calls that nobody needs any more.
const callsWait = 5 * time.Second

// Stop waits a moment for tool calls that have outlived their runs. Call it after the last Run has returned.
func (rt *Runtime) Stop(ctx context.Context) error {
	rt.agents.Close()
	ctx, cancel := context.WithTimeout(ctx, callsWait)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		rt.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done(): // their results are dropped whenever they come, so the process can end
		rt.Logger.WarnContext(ctx, "tool calls do not end")
	}
	return nil
}

// Limit implements slot.Runner.
func (rt *Runtime) Limit(name string) time.Duration { return rt.wall(name) + overrun }

func (rt *Runtime) wall(name string) time.Duration {
	if p := rt.profiles[name]; p != nil {
		return p.cfg.Limits.Wall
	}
	return config.DefaultWall
}

// Run implements slot.Runner: it answers a claimed run and finishes it, whatever happens, unless the run is lost, is handed
// over because the worker goes away, waits for an answer, or has panicked and is left to its next attempt.
func (rt *Runtime) Run(held slot.Held) slot.Ended {
	r := rt.newRun(held)
	defer r.close()
	err := r.guarded(r.answer)
	if err != nil && r.mayWrite(err) {
		err = r.guarded(func() error { return r.rescue(err) })
	}
	r.ended(err)
	return r.next
}

const (
	retryFirst   = 20 * time.Millisecond
	retryLongest = time.Second
)

// read repeats a read while the store is unavailable, until ctx ends.
func read[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (T, error) {
	return again(ctx, store.ErrUnavailable, f)
}

// again repeats f while its error is a passing one, until ctx ends.
func again[T any](ctx context.Context, passing error, f func(ctx context.Context) (T, error)) (T, error) {
	for wait := retryFirst; ; wait = min(2*wait, retryLongest) {
		value, err := f(ctx)
		if !errors.Is(err, passing) {
			return value, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return value, context.Cause(ctx)
		}
	}
}
