package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// Config is what an operator sets for an agent. Zero values mean the defaults of [DefaultConfig], except where said.
type Config struct {
	// ModelName is the provider's name of the model.
	ModelName string
	// System is the system prompt.
	System string
	// Steps is the number of model calls, after which one more sums up without tools.
	Steps int
	// HistoryLimit is how many messages of earlier runs a request carries; negative: none.
	HistoryLimit int
	// OutputTokens bounds one model call, 0 leaves it to the provider.
	OutputTokens int
	// ToolTimeout bounds one tool call.
	ToolTimeout time.Duration
	// ToolResultBytes bounds the observation of one call.
	ToolResultBytes int
	// ParallelTools bounds the read-only calls of a step that run at once.
	ParallelTools int
	// Retry bounds the repetition of failed model calls.
	Retry Retry
}

// Retry says how often and how long after each other a model call is tried.
type Retry struct {
	// Attempts counts all tries of one model call.
	Attempts int
	// Initial is the first wait, Max the longest; waits double and are jittered.
	Initial, Max time.Duration
	// MaxWait is the longest Retry-After that is waited for; a longer one ends the run.
	MaxWait time.Duration
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Steps:           50,
		HistoryLimit:    100,
		ToolTimeout:     30 * time.Second,
		ToolResultBytes: 64 << 10,
		ParallelTools:   8,
		Retry:           Retry{Attempts: 4, Initial: time.Second, Max: 30 * time.Second, MaxWait: 5 * time.Minute},
	}
}

// Deps are what code supplies.
type Deps struct {
	Model llm.Model
	// Tools are what the agent may call; nil: nothing.
	Tools *tool.Registry
	// Executor runs them. It may return an error that is [ErrFenced] to end the run at once.
	Executor tool.Executor
	// Go starts each tool call in a goroutine of its own, so that its owner can wait for those that outlive their run: a
	// run does not wait for a tool that does not heed the end of its context. nil: nobody waits for them.
	Go func(f func())
	// Now is the wall clock by which questions expire; nil: time.Now.
	Now func() time.Time
	// Tracer and Meter may be nil.
	Tracer trace.Tracer
	Meter  metric.Meter
}

// Loop is an agent. Make one per profile and keep it.
type Loop struct {
	cfg  Config
	deps Deps
	tel  telemetry
}

// New returns a loop.
func New(cfg Config, deps Deps) (*Loop, error) {
	if deps.Tools == nil {
		deps.Tools = tool.NoTools()
	}
	if deps.Go == nil {
		deps.Go = func(f func()) { go f() }
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Model == nil {
		return nil, errors.New("agent: model: must not be nil")
	}
	if deps.Executor == nil && slices.ContainsFunc(deps.Tools.Names(), func(name string) bool { return name != AskUser }) {
		return nil, errors.New("agent: executor: must not be nil where there are tools")
	}
	tel, err := newTelemetry(deps)
	if err != nil {
		return nil, err
	}
	return &Loop{cfg: cfg.withDefaults(), deps: deps, tel: tel}, nil
}

// Run answers the prompt of a run. It calls journal as [Journal] says and observe, which may be nil, for everything
// that happens.
//
// The result is valid also with an error, unless that is [ErrFenced] or comes from the journal: it holds the messages
// and calls that are not checkpointed yet, with every call paired, and the text shown so far. The errors are
// [ErrStopped] (by a signal of the journal, or as the cause of ctx), [ErrHandover] (by [Run.Leave], or as the cause of
// ctx), [ErrSuspended], any other cause of ctx, the error of the journal, or the *llm.Error that ended the run.
//
// When ctx ends, calls that run have 2 s to end too. Run does not wait for them any longer: their results are dropped,
// and observe is not told of them.
func (l *Loop) Run(ctx context.Context, run Run, journal Journal, observe Observer) (Result, error) {
	r := newRunner(l, run, journal, observe)
	defer r.silence()
	return r.run(ctx)
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.HistoryLimit == 0 {
		c.HistoryLimit = d.HistoryLimit
	}
	setDefault(&c.Steps, d.Steps)
	setDefault(&c.ToolTimeout, d.ToolTimeout)
	setDefault(&c.ToolResultBytes, d.ToolResultBytes)
	setDefault(&c.ParallelTools, d.ParallelTools)
	setDefault(&c.Retry.Attempts, d.Retry.Attempts)
	setDefault(&c.Retry.Initial, d.Retry.Initial)
	setDefault(&c.Retry.Max, d.Retry.Max)
	setDefault(&c.Retry.MaxWait, d.Retry.MaxWait)
	return c
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
