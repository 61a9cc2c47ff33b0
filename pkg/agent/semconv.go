package agent

import (
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

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// The GenAI conventions are still in development: every name of theirs stands in this file and nowhere else.
const (
	attrOperation      = attribute.Key("gen_ai.operation.name")
	attrProvider       = attribute.Key("gen_ai.provider.name")
	attrAgentID        = attribute.Key("gen_ai.agent.id")
	attrAgentName      = attribute.Key("gen_ai.agent.name")
	attrConversation   = attribute.Key("gen_ai.conversation.id")
	attrRequestModel   = attribute.Key("gen_ai.request.model")
	attrResponseModel  = attribute.Key("gen_ai.response.model")
	attrResponseID     = attribute.Key("gen_ai.response.id")
	attrFinishReasons  = attribute.Key("gen_ai.response.finish_reasons")
	attrInputTokens    = attribute.Key("gen_ai.usage.input_tokens")
	attrOutputTokens   = attribute.Key("gen_ai.usage.output_tokens")
	attrTokenType      = attribute.Key("gen_ai.token.type")
	attrToolName       = attribute.Key("gen_ai.tool.name")
	attrToolType       = attribute.Key("gen_ai.tool.type")
	attrToolCallID     = attribute.Key("gen_ai.tool.call.id")
	attrErrorType      = attribute.Key("error.type")
	metricTokens       = "gen_ai.client.token.usage"
	metricDuration     = "gen_ai.client.operation.duration"
	operationChat      = "chat"
	operationTool      = "execute_tool"
	operationAgent     = "invoke_agent"
	toolTypeFunction   = "function"
	tokenTypeInput     = "input"
	tokenTypeOutput    = "output"
	errorTypeUncounted = "_OTHER"
)

// SpanOfRun returns name and attributes of the span of a whole run (kind INTERNAL), which the owner of the run starts:
// the spans of the loop are its children.
func SpanOfRun(agentID, agentName, skey string) (string, []attribute.KeyValue) {
	return operationAgent + " " + agentName, []attribute.KeyValue{
		attrOperation.String(operationAgent), attrAgentID.String(agentID), attrAgentName.String(agentName),
		attrConversation.String(skey),
	}
}

type telemetry struct {
	tracer   trace.Tracer
	provider string
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
}

func newTelemetry(deps Deps) (telemetry, error) {
	t := telemetry{tracer: deps.Tracer, provider: deps.Model.Provider()}
	if t.tracer == nil {
		t.tracer = tracenoop.Tracer{}
	}
	meter := deps.Meter
	if meter == nil {
		meter = metricnoop.Meter{}
	}
	var err error
	t.tokens, err = meter.Int64Histogram(metricTokens, metric.WithUnit("{token}"),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304))
	if err != nil {
		return t, fmt.Errorf("histogram %s: %w", metricTokens, err)
	}
	t.duration, err = meter.Float64Histogram(metricDuration, metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	if err != nil {
		return t, fmt.Errorf("histogram %s: %w", metricDuration, err)
	}
	return t, nil
}

// chat starts the span of a model call; end closes it and records its metrics.
func (t telemetry) chat(ctx context.Context, model, skey string) (context.Context, func(llm.Response, error)) {
	start := time.Now()
	ctx, span := t.tracer.Start(ctx, operationChat+" "+model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attrOperation.String(operationChat), attrProvider.String(t.provider), attrRequestModel.String(model),
		attrConversation.String(skey),
	))
	return ctx, func(resp llm.Response, err error) {
		defer span.End()
		labels := []attribute.KeyValue{
			attrOperation.String(operationChat), attrProvider.String(t.provider), attrRequestModel.String(model),
		}
		if err != nil {
			kind := attrErrorType.String(errorType(err))
			span.SetStatus(codes.Error, kind.Value.AsString())
			span.SetAttributes(kind)
			t.duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(append(labels, kind)...))
			return
		}
		span.SetAttributes(
			attrResponseModel.String(resp.Model), attrResponseID.String(resp.ID),
			attrFinishReasons.StringSlice([]string{string(resp.Finish)}),
			attrInputTokens.Int64(resp.Usage.InputTokens), attrOutputTokens.Int64(resp.Usage.OutputTokens),
		)
		t.duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(labels...))
		t.countTokens(ctx, resp.Usage, labels)
	}
}

func (t telemetry) countTokens(ctx context.Context, u llm.Usage, labels []attribute.KeyValue) {
	if u == (llm.Usage{}) { // the provider tells none
		return
	}
	n := len(labels)
	t.tokens.Record(ctx, u.InputTokens, metric.WithAttributes(append(labels[:n:n], attrTokenType.String(tokenTypeInput))...))
	t.tokens.Record(ctx, u.OutputTokens, metric.WithAttributes(append(labels[:n:n], attrTokenType.String(tokenTypeOutput))...))
}

// tool starts the span of a tool call; the returned function ends it.
func (t telemetry) tool(ctx context.Context, name, callID, skey string) (context.Context, func(tool.Result, error)) {
	ctx, span := t.tracer.Start(ctx, operationTool+" "+name, trace.WithAttributes(
		attrOperation.String(operationTool), attrToolName.String(name), attrToolType.String(toolTypeFunction),
		attrToolCallID.String(callID), attrConversation.String(skey),
	))
	return ctx, func(r tool.Result, err error) {
		defer span.End()
		kind := string(r.Outcome)
		if err != nil {
			kind = errorType(err)
		}
		if kind != string(tool.OK) {
			span.SetStatus(codes.Error, kind)
			span.SetAttributes(attrErrorType.String(kind))
		}
	}
}

// errorType has few values: it is a metric label.
func errorType(err error) string {
	var e *llm.Error
	switch {
	case errors.As(err, &e):
		return string(e.Kind)
	case errors.Is(err, ErrStopped):
		return "stopped"
	case errors.Is(err, ErrFenced):
		return "fenced"
	case errors.Is(err, tool.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return errorTypeUncounted
	}
}
