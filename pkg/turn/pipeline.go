package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
)

// Config is what an operator sets.
type Config struct {
	// MaxTextBytes bounds the text of a turn; 0: event.MaxTextBytes.
	MaxTextBytes int
	// CommitTimeout bounds the commit, which outlives the context of the run; 0: 10 s.
	CommitTimeout time.Duration
}

// Recogniser finds what the messages want.
type Recogniser interface {
	Recognise(ctx context.Context, t *Turn) (Intent, error)
}

// Router decides who executes a turn.
type Router interface {
	Route(ctx context.Context, t *Turn) (Decision, error)
}

// Deps are what code supplies; each may be nil. Without recogniser every turn is chat, without router every turn goes to
// the ReAct loop.
type Deps struct {
	Recogniser Recogniser
	Router     Router
	Tracer     trace.Tracer
	Meter      metric.Meter
}

// Pipeline runs turns.
type Pipeline struct {
	cfg       Config
	deps      Deps
	durations metric.Float64Histogram
}

// DurationMetric is the histogram of the time in each state; its one label is the state.
const DurationMetric = "hermes_state_duration_seconds"

// New returns a pipeline.
func New(cfg Config, deps Deps) (*Pipeline, error) {
	cfg.MaxTextBytes = cmp.Or(cfg.MaxTextBytes, event.MaxTextBytes)
	cfg.CommitTimeout = cmp.Or(cfg.CommitTimeout, 10*time.Second)
	if deps.Recogniser == nil {
		deps.Recogniser = chat{}
	}
	if deps.Router == nil {
		deps.Router = react{}
	}
	if deps.Tracer == nil {
		deps.Tracer = tracenoop.Tracer{}
	}
	if deps.Meter == nil {
		deps.Meter = metricnoop.Meter{}
	}
	durations, err := deps.Meter.Float64Histogram(DurationMetric, metric.WithUnit("s"),
		metric.WithDescription("Time in each state of a turn."),
		metric.WithExplicitBucketBoundaries(.0001, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800))
	if err != nil {
		return nil, fmt.Errorf("histogram %s: %w", DurationMetric, err)
	}
	return &Pipeline{cfg: cfg, deps: deps, durations: durations}, nil
}

// Run takes a turn through all states. The turn is committed if the error is nil, whatever its outcome. It is not
// committed, and nothing more may be written for this attempt, if the error is agent.ErrFenced, a cause of ctx other
// than agent.ErrStopped and context.DeadlineExceeded (the wall time of the run), or an error of the journal or the
// committer. With agent.ErrHandover the run goes on elsewhere, with agent.ErrSuspended when there is an answer, and the
// Result of the turn is what it has done so far.
func (p *Pipeline) Run(ctx context.Context, in Input, h Handlers) (*Turn, error) {
	t := &Turn{Input: in, Outcome: Done}
	s := &stages{Pipeline: p, Handlers: h, turn: t}
	if err := s.state(ctx, Preprocess, s.preprocess); err != nil {
		s.reject(err)
	} else {
		// Both states fall back by themselves: their errors are told, not fatal.
		_ = s.state(ctx, Recognise, s.recognise)
		_ = s.state(ctx, Route, s.route)
		if err := s.state(ctx, Execute, s.execute); err != nil {
			if err := s.settle(ctx, err); err != nil {
				return t, err
			}
		}
	}
	_ = s.state(ctx, Render, s.render) // falls back to the raw text by itself
	return t, s.commitDetached(ctx)
}

// stages is one turn on its way.
type stages struct {
	*Pipeline
	Handlers
	turn *Turn
}

// state wraps the work of a state with its span, its time and its event.
func (s *stages) state(ctx context.Context, state State, work func(context.Context) error) error {
	ctx, span := s.deps.Tracer.Start(ctx, "turn "+string(state))
	defer span.End()
	start := time.Now()
	err := work(ctx)
	if err != nil {
		span.SetStatus(codes.Error, string(state))
		span.RecordError(err)
	}
	took := time.Since(start)
	s.durations.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("state", string(state))))
	if s.Observe != nil {
		s.Observe(ctx, StateChange{State: state, Duration: took, Err: err})
	}
	return err
}

func (s *stages) held(ctx context.Context) error {
	if s.Fence == nil {
		return nil
	}
	return s.Fence(ctx)
}

func (s *stages) reject(err error) {
	s.turn.Outcome, s.turn.Failure = Rejected, err
	s.turn.Result.Outcome = agent.Failed
}

// settle decides what an error of execute means. It returns those errors after which nothing may be written.
func (s *stages) settle(ctx context.Context, err error) error {
	var failed *ExecuteError
	var model *llm.Error
	switch {
	case errors.Is(err, agent.ErrFenced):
		return err
	case errors.Is(err, agent.ErrStopped):
		s.turn.Outcome = Cancelled
		return nil
	case errors.As(err, &failed), errors.As(err, &model), overdue(ctx):
		s.turn.Outcome, s.turn.Failure = Failed, err
		return nil
	default:
		return err
	}
}

// overdue reports that the run used up its wall time.
func overdue(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// commitDetached commits without regard to the end of the context: that a run was stopped or took too long has to be
// written down, and a stop that comes during the commit must not tear the statement which decides between the two.
func (s *stages) commitDetached(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, agent.ErrFenced) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.CommitTimeout)
	defer cancel()
	return s.state(ctx, Commit, s.commit)
}
