package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

func fail(kind llm.ErrorKind) turn { return turn{err: &llm.Error{Kind: kind, Message: "test"}} }

func TestRun_RepeatsTransientFailuresWithGrowingWaits(t *testing.T) {
	t.Parallel()
	for _, kind := range []llm.ErrorKind{llm.KindRateLimit, llm.KindOverloaded, llm.KindServer, llm.KindTimeout, llm.KindNetwork} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			m := &scripted{turns: []turn{fail(kind), fail(kind), {text: "here now"}}}
			start := time.Now()
			result := b.do(t, agent.Config{}, m, run("go"))
			require.Equal(t, "here now", result.Text)
			require.Equal(t, "here now", b.shown())
			require.Len(t, m.requests, 3)
			// Waits of 1 s and 2 s, each jittered by half.
			require.GreaterOrEqual(t, time.Since(start), 1500*time.Millisecond)
			require.LessOrEqual(t, time.Since(start), 4500*time.Millisecond)
		})
	}
}

func TestRun_GivesUpAfterItsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		m := &scripted{turns: []turn{fail(llm.KindServer)}}
		result, err := loop(t, b, agent.Config{}, m).Run(t.Context(), run("go"), b, b.observe)
		var failed *llm.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, llm.KindServer, failed.Kind)
		require.Len(t, m.requests, 4)
		require.Equal(t, agent.Failed, result.Outcome)
		require.Equal(t, []agent.Entry{{N: 1, Message: user("go"), InboxSeq: 7}}, result.Entries, "the user's message is kept")
	})
}

func TestAGT12_FinalFailuresAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, kind := range []llm.ErrorKind{llm.KindAuth, llm.KindBilling, llm.KindBadRequest, llm.KindModelNotFound, llm.KindPolicy} {
		m := &scripted{turns: []turn{fail(kind)}}
		_, err := loop(t, newBench(), quick(), m).Run(t.Context(), run("go"), newBench(), nil)
		require.ErrorContains(t, err, string(kind))
		require.Len(t, m.requests, 1)
	}
}

func TestAGT12_RetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	limited := func(after time.Duration) turn {
		return turn{err: &llm.Error{Kind: llm.KindRateLimit, Status: 429, RetryAfter: after}}
	}
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{turns: []turn{limited(7 * time.Second), {text: "here now"}}}
		start := time.Now()
		newBench().do(t, agent.Config{}, m, run("go"))
		require.GreaterOrEqual(t, time.Since(start), 7*time.Second)
		require.Less(t, time.Since(start), 8*time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{turns: []turn{limited(24 * time.Hour)}}
		start := time.Now()
		_, err := loop(t, newBench(), agent.Config{}, m).Run(t.Context(), run("go"), newBench(), nil)
		require.ErrorContains(t, err, "rate_limit")
		require.Zero(t, time.Since(start), "a wait that is too long ends the run at once")
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		m := &scripted{turns: []turn{limited(7 * time.Second)}}
		start := time.Now()
		_, err := loop(t, newBench(), agent.Config{}, m).Run(ctx, run("go"), newBench(), nil)
		require.ErrorContains(t, err, "rate_limit")
		require.Zero(t, time.Since(start), "so does one beyond the time of the run")
	})
}

func TestRun_StopDuringAWaitEndsItAtOnceWithItsCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		m := &scripted{turns: []turn{{err: &llm.Error{Kind: llm.KindRateLimit, RetryAfter: time.Minute}}}}
		time.AfterFunc(3*time.Second, func() { cancel(agent.ErrStopped) })
		start := time.Now()
		_, err := loop(t, newBench(), agent.Config{}, m).Run(ctx, run("go"), newBench(), nil)
		require.ErrorIs(t, err, agent.ErrStopped)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestRun_AnyOtherCauseOfTheContextComesBack(t *testing.T) {
	t.Parallel()
	drained := errors.New("drained")
	ctx, cancel := context.WithCancelCause(t.Context())
	m := &scripted{turns: []turn{{text: "never seen", before: func() { cancel(drained) }}}}
	_, err := loop(t, newBench(), quick(), m).Run(ctx, run("go"), newBench(), nil)
	require.ErrorIs(t, err, drained)
}

func TestRun_StreamThatBreaksAfterTextIsContinuedNotRepeated(t *testing.T) {
	t.Parallel()
	b := newBench()
	server, m := wire(t, fakemodel.Sequence(fakemodel.Reply{Text: "one two ", Break: true}, fakemodel.Reply{Text: "three four"}))
	result := b.do(t, quick(), m, run("count"))
	require.Equal(t, "one two three four", result.Text)
	require.Equal(t, "one two three four", b.shown(), "nothing is shown twice")
	require.Equal(t, []llm.Message{user("count"), said("one two three four")}, b.stored())
	sent := server.Requests()[1].Messages
	require.Equal(t, fakemodel.Message{Role: "assistant", Content: "one two "}, sent[2])
	require.Contains(t, sent[3].Content, "Continue exactly where it stopped")
}

func TestRun_StreamThatBreaksBeforeTextIsRepeated(t *testing.T) {
	t.Parallel()
	b := newBench()
	server, m := wire(t, fakemodel.Sequence(fakemodel.Reply{Break: true}, fakemodel.Reply{Status: 529}, fakemodel.Reply{Text: "all of it"}))
	result := b.do(t, quick(), m, run("go"))
	require.Equal(t, "all of it", result.Text)
	require.Len(t, server.Requests(), 3)
	require.Len(t, server.Requests()[2].Messages, 2)
}

func TestRun_ToolRoundTripOnTheWire(t *testing.T) {
	t.Parallel()
	b := newBench()
	server, m := wire(t, fakemodel.Sequence(
		fakemodel.Reply{Text: "looking", Calls: []fakemodel.Call{{ID: "a", Name: "read", Arguments: `{"path":"x.txt"}`}, {ID: "b", Name: "now"}}, InputTokens: 5, OutputTokens: 2},
		fakemodel.Reply{Text: "it is there", InputTokens: 9, OutputTokens: 3},
	))
	result := b.do(t, quick(), m, run("go"))
	require.Equal(t, llm.Usage{InputTokens: 14, OutputTokens: 5}, result.Usage)
	sent := server.Requests()[1].Messages
	require.Len(t, sent, 5)
	require.Equal(t, "looking", sent[2].Content)
	require.Len(t, sent[2].ToolCalls, 2)
	require.Equal(t, fakemodel.Message{Role: "tool", ToolCallID: "a", Content: "read ok"}, sent[3])
	require.Equal(t, fakemodel.Message{Role: "tool", ToolCallID: "b", Content: "now ok"}, sent[4])
}

func TestAGT15_AToolThatNeverAnswersEndsWithAnErrorAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _ tool.Request, _ func(string)) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, context.Cause(ctx)
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){"now": hang, "send": hang}
		m := &scripted{turns: []turn{
			{calls: []llm.ToolCall{call("a", "now", "")}},
			{calls: []llm.ToolCall{call("b", "send", "")}},
			{calls: []llm.ToolCall{call("c", "put", "")}},
			{text: "put it"},
		}}
		start := time.Now()
		result := b.do(t, agent.Config{ToolTimeout: 30 * time.Second}, m, run("go"))
		require.Equal(t, "put it", result.Text)
		require.InDelta(t, 60, time.Since(start).Seconds(), 3)
		require.Equal(t, failed("a", "no result after 30s"), m.requests[1].Messages[2])
		require.Equal(t, failed("b", "no result after 30s; outcome unknown: the action may have happened; verify before repeating"),
			m.requests[2].Messages[4])
		require.Equal(t, agent.CallFailed, b.calls["a"].State)
		require.Equal(t, agent.CallUnknown, b.calls["b"].State)
		require.Equal(t, agent.CallDone, b.calls["c"].State)
	})
}

func TestRun_RepeatsCallsThatFoundNoServerOnlyIfTheirEffectAllowsIt(t *testing.T) {
	t.Parallel()
	tries := map[string]int{}
	gone := func(_ context.Context, req tool.Request, _ func(string)) (tool.Result, error) {
		tries[req.CallID]++
		if req.CallID == "b" && tries["b"] == 3 {
			return tool.Result{Outcome: tool.OK, Content: "at last"}, nil
		}
		return tool.Result{}, tool.ErrUnavailable
	}
	b := newBench()
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){"put": gone, "send": gone}
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "put", ""), call("b", "put", ""), call("c", "send", "")}}, {text: "tried it"}}}
	b.do(t, quick(), m, run("go"))
	require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 1}, tries)
	require.Equal(t, []llm.Message{
		failed("a", "no tool server answered; the call may be tried again later"), got("b", "at last"),
		failed("c", "outcome unknown: the action may have happened; verify before repeating"),
	}, m.requests[1].Messages[2:])
	require.Equal(t, agent.CallUnknown, b.calls["c"].State)
	for _, req := range b.executed {
		require.Equal(t, "run:"+req.CallID, req.IdemKey)
	}
}

func TestRun_EventsCarryModelUsageAndOutcome(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"now": func(_ context.Context, _ tool.Request, progress func(string)) (tool.Result, error) {
			progress("half")
			return tool.Result{Outcome: tool.Denied, Content: "no"}, nil
		},
	}
	b.do(t, quick(), &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "now", "")}}, {text: "fine then"}}}, run("go"))
	byKind := map[agent.EventKind]agent.Event{}
	for _, e := range b.events {
		byKind[e.Kind] = e
	}
	require.Equal(t, "m", byKind[agent.LLMStarted].Model)
	require.Equal(t, llm.Usage{InputTokens: 10, OutputTokens: 1}, byKind[agent.LLMFinished].Usage)
	require.Equal(t, agent.Event{Kind: agent.ToolStarted, Tool: "now", CallID: "a"}, byKind[agent.ToolStarted])
	require.Equal(t, agent.Event{Kind: agent.ToolProgress, Tool: "now", CallID: "a", Text: "half"}, byKind[agent.ToolProgress])
	finished := byKind[agent.ToolFinished]
	require.Equal(t, "denied", finished.Outcome)
	require.Equal(t, 2, finished.Size)
}

func TestRun_SpansAndMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	reader := metric.NewManualReader()
	b := newBench()
	m := &scripted{turns: []turn{fail(llm.KindOverloaded), {calls: []llm.ToolCall{call("a", "now", "")}}, {text: "fine then"}}}
	l, err := agent.New(quick(), agent.Deps{
		Model: m, Tools: registry(t), Executor: b,
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test"),
		Meter:  metric.NewMeterProvider(metric.WithReader(reader)).Meter("test"),
	})
	require.NoError(t, err)
	_, err = l.Run(t.Context(), run("go"), b, nil)
	require.NoError(t, err)

	ended := spans.Ended()
	var names []string
	for _, s := range ended {
		names = append(names, s.Name())
	}
	require.Equal(t, []string{"chat m", "chat m", "execute_tool now", "chat m"}, names)
	require.Equal(t, trace.SpanKindClient, ended[0].SpanKind())
	require.Contains(t, ended[0].Attributes(), attribute.String("error.type", "overloaded"))
	for _, want := range []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", "scripted"),
		attribute.String("gen_ai.request.model", "m"), attribute.String("gen_ai.response.model", "scripted-1"),
		attribute.String("gen_ai.conversation.id", "skey"), attribute.Int64("gen_ai.usage.input_tokens", 10),
		attribute.StringSlice("gen_ai.response.finish_reasons", []string{"tool_calls"}),
	} {
		require.Contains(t, ended[1].Attributes(), want)
	}
	require.Equal(t, trace.SpanKindInternal, ended[2].SpanKind())
	require.Contains(t, ended[2].Attributes(), attribute.String("gen_ai.tool.call.id", "a"))

	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	points := map[string]int{}
	for _, metric := range data.ScopeMetrics[0].Metrics {
		switch h := metric.Data.(type) {
		case metricdata.Histogram[int64]:
			points[metric.Name] = len(h.DataPoints)
		case metricdata.Histogram[float64]:
			points[metric.Name] = len(h.DataPoints)
			for _, p := range h.DataPoints {
				_, session := p.Attributes.Value("gen_ai.conversation.id")
				require.False(t, session, "no session in a label")
			}
		}
	}
	require.Equal(t, map[string]int{"gen_ai.client.token.usage": 2, "gen_ai.client.operation.duration": 2}, points)
}
