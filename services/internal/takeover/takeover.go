// Package takeover gives a run whose owner is gone, or has failed, to the next one, or gives it up when it has cost too
// many.
//
//	running ──► Take ──► queued again, one attempt more
//	              └─ at a limit ──► GiveUp: dead, with an apology and a dead letter; the session goes on
//
// A stall is a takeover while a tool call was open. Stalls of one call in a row are evidence against it; a run that only
// waited for its model when its worker died is a bystander, and only counts an attempt. Whatever is lost after a commit
// is found by the sweeper.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Outcome says what became of the run.
type Outcome int

// Moved: nothing was written, the session has moved on by itself. Queued: the run goes on in another place. Dead: it was
// given up, and the session goes on with the next message.
const (
	Moved Outcome = iota
	Queued
	Dead
)

// Result of a takeover.
type Result struct {
	Outcome Outcome
	// Gen and RunID are of the run that is queued now: the same one, or the next one; uuid.Nil if there is none.
	Gen   int64
	RunID uuid.UUID
}

// Store takes runs over and tells what they were doing.
type Store interface {
	inbox.Reader
	Session(ctx context.Context, skey string) (store.Session, error)
	Run(ctx context.Context, id uuid.UUID) (store.Run, error)
	RunToolCalls(ctx context.Context, id uuid.UUID) ([]store.ToolCall, error)
	Takeover(ctx context.Context, t store.Takeover) (store.TakenOver, error)
	GiveUp(ctx context.Context, g store.GiveUp) (store.FinishResult, error)
}

// Events take lifecycle events, without waiting.
type Events interface {
	Emit(ev event.Lifecycle)
}

// Deps of a Taker.
type Deps struct {
	Store  Store
	Bus    bus.Publisher
	Events Events
	// StallLimit is how many workers in a row one tool call may cost, AttemptLimit how many a run may cost.
	StallLimit, AttemptLimit int
	Logger                   *slog.Logger
	Meter                    metric.Meter
}

// Taker takes runs over. It is safe for concurrent use.
type Taker struct {
	Deps
	takeovers metric.Int64Counter
	stalls    metric.Int64Counter
}

// New returns a taker.
func New(deps Deps) (*Taker, error) {
	takeovers, errTakeovers := deps.Meter.Int64Counter("hermes_takeovers_total",
		metric.WithDescription("Runs that were taken from their owner, by what became of them: queued, dead."))
	stalls, errStalls := deps.Meter.Int64Counter("hermes_stalls_total",
		metric.WithDescription("Runs that were taken from their owner while a tool call was open."))
	if err := errors.Join(errTakeovers, errStalls); err != nil {
		return nil, fmt.Errorf("takeover metrics: %w", err)
	}
	return &Taker{Deps: deps, takeovers: takeovers, stalls: stalls}, nil
}

// Take is T6 for a run as it was read, or the dead form of T4 where it has reached a limit. reason is for operators. With a
// delay the run has failed by itself: it rests for delay times two to the power of its stalls.
func (t *Taker) Take(ctx context.Context, run store.ActiveRun, reason string, delay time.Duration) (Result, error) {
	calls, err := t.ledger(ctx, run.RunID)
	if err != nil {
		return Result{}, err
	}
	key := calls.stallKey()
	if key == "" && delay > 0 {
		key = panicKey
	}
	stall := stallWith(run, key)
	if run.Attempt+1 >= t.AttemptLimit || key != "" && stall >= t.StallLimit {
		return t.giveUp(ctx, run, calls, reason)
	}
	taken, err := t.Store.Takeover(ctx, store.Takeover{
		SKey: run.SKey, Gen: run.Gen, Owner: run.Owner, StallKey: key, Delay: delay << stall,
	})
	switch {
	case errors.Is(err, store.ErrFenced):
		return Result{Outcome: Moved}, nil
	case err != nil:
		return Result{}, fmt.Errorf("take run over: %w", err)
	}
	t.count(ctx, Queued, key)
	t.Logger.WarnContext(ctx, "run taken over", "skey", run.SKey, "run_id", run.RunID, "gen", taken.Gen, "attempt", taken.Attempt,
		"stall", taken.Stall, "worker_id", workerOf(run.Owner), "err", reason)
	t.tellTaken(ctx, run, taken, delay > 0)
	return Result{Outcome: Queued, Gen: taken.Gen, RunID: taken.RunID}, nil
}

// panicKey is the stall key of a run that panicked outside its tool calls: such a run is no bystander.
const panicKey = "panic"

// stallWith is how many workers in a row the same thing will have cost with this one. Without a key nothing is proved.
func stallWith(run store.ActiveRun, key string) int {
	switch key {
	case "":
		return run.Stall
	case run.StallKey:
		return run.Stall + 1
	default:
		return 1
	}
}

func workerOf(owner string) string {
	worker, _, _ := strings.Cut(owner, "/")
	return worker
}

func (t *Taker) count(ctx context.Context, outcome Outcome, stallKey string) {
	name := "queued"
	if outcome == Dead {
		name = "dead"
	}
	t.takeovers.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", name)))
	if stallKey != "" {
		t.stalls.Add(ctx, 1)
	}
}
