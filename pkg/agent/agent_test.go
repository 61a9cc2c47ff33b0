package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/llm/openai"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// turn is one scripted answer: an error after some text, or a message.
type turn struct {
	text   string
	calls  []llm.ToolCall
	finish llm.FinishReason
	err    error
	// before runs first, in the goroutine of the run.
	before func()
}

// scripted is a model that answers in order, repeats its last answer, and remembers every request.
type scripted struct {
	turns    []turn
	requests []llm.Request
}

func (*scripted) Provider() string { return "scripted" }

func (s *scripted) Generate(ctx context.Context, req llm.Request, onText func(string)) (llm.Response, error) {
	t := s.turns[min(len(s.requests), len(s.turns)-1)]
	s.requests = append(s.requests, req)
	if t.before != nil {
		t.before()
	}
	if ctx.Err() != nil {
		return llm.Response{}, context.Cause(ctx)
	}
	for _, word := range strings.SplitAfter(t.text, " ") {
		if word != "" {
			onText(word)
		}
	}
	if ctx.Err() != nil {
		return llm.Response{}, context.Cause(ctx)
	}
	if t.err != nil {
		return llm.Response{}, t.err
	}
	finish := t.finish
	switch {
	case finish != "":
	case len(t.calls) > 0:
		finish = llm.FinishToolCalls
	default:
		finish = llm.FinishStop
	}
	return llm.Response{
		ID: "resp", Model: "scripted-1", Finish: finish, Usage: llm.Usage{InputTokens: 10, OutputTokens: 1},
		Message: llm.Message{Role: llm.Assistant, Text: t.text, ToolCalls: slices.Clone(t.calls)},
	}, nil
}

func call(id, name, arguments string) llm.ToolCall {
	return llm.ToolCall{ID: id, Name: name, Arguments: arguments}
}

func user(text string) llm.Message { return llm.Message{Role: llm.User, Text: text} }

func said(text string) llm.Message { return llm.Message{Role: llm.Assistant, Text: text} }

func asked(calls ...llm.ToolCall) llm.Message {
	return llm.Message{Role: llm.Assistant, ToolCalls: calls}
}

func got(id, text string) llm.Message { return llm.Message{Role: llm.Tool, ToolCallID: id, Text: text} }

func failed(id, text string) llm.Message {
	return llm.Message{Role: llm.Tool, ToolCallID: id, Text: text, ToolError: true}
}

// bench is everything around a loop: a journal that stores, an executor that records, an observer that remembers.
type bench struct {
	mu       sync.Mutex
	log      []string // what happened, in order: "checkpoint …", "start …", "end …"
	executed []tool.Request
	events   []agent.Event

	entries []agent.Entry
	calls   map[string]agent.Call

	// onCheckpoint decides the answer to the n-th checkpoint, counted from 1; nil: go on.
	onCheckpoint func(n int) (agent.Signal, error)
	checkpoints  int
	// tools by name; a tool without an entry says "<name> ok".
	tools map[string]func(ctx context.Context, req tool.Request, progress func(string)) (tool.Result, error)
}

func newBench() *bench { return &bench{calls: map[string]agent.Call{}} }

func (b *bench) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf(format, args...))
}

// Checkpoint keeps what the real store keeps: entries once, calls in their newest state.
func (b *bench) Checkpoint(_ context.Context, step agent.Step) (agent.Signal, error) {
	b.checkpoints++
	b.note("checkpoint %s", describe(step))
	if b.onCheckpoint != nil {
		if signal, err := b.onCheckpoint(b.checkpoints); err != nil || signal.Stop {
			if err == nil {
				b.keep(step.Messages, step.Calls)
			}
			return signal, err
		}
	}
	b.keep(step.Messages, step.Calls)
	return agent.Signal{}, nil
}

func describe(step agent.Step) string {
	var parts []string
	for _, e := range step.Messages {
		parts = append(parts, fmt.Sprintf("%d:%s", e.N, e.Message.Role))
	}
	for _, c := range step.Calls {
		parts = append(parts, fmt.Sprintf("%s=%s", c.ID, c.State))
	}
	return strings.Join(parts, " ")
}

func (b *bench) keep(entries []agent.Entry, calls []agent.Call) {
	for _, e := range entries {
		if !slices.ContainsFunc(b.entries, func(k agent.Entry) bool { return k.N == e.N }) {
			b.entries = append(b.entries, e)
		}
	}
	slices.SortFunc(b.entries, func(x, y agent.Entry) int { return x.N - y.N })
	for _, c := range calls {
		b.calls[c.ID] = c
	}
}

func (b *bench) stored() []llm.Message {
	var out []llm.Message
	for _, e := range b.entries {
		out = append(out, e.Message)
	}
	return out
}

func (b *bench) ledger() []agent.Call {
	var out []agent.Call
	for _, c := range b.calls {
		out = append(out, c)
	}
	return out
}

func (b *bench) Tools(context.Context) ([]tool.Spec, error) { return nil, nil }

func (b *bench) Execute(ctx context.Context, req tool.Request, progress func(string)) (tool.Result, error) {
	b.mu.Lock()
	b.executed = append(b.executed, req)
	work := b.tools[req.Name]
	b.mu.Unlock()
	b.note("start %s", req.CallID)
	defer b.note("end %s", req.CallID)
	if work == nil {
		return tool.Result{Outcome: tool.OK, Content: req.Name + " ok"}, nil
	}
	return work(ctx, req, progress)
}

func (b *bench) observe(_ context.Context, e agent.Event) { b.events = append(b.events, e) }

func (b *bench) shown() string {
	var text strings.Builder
	for _, e := range b.events {
		if e.Kind == agent.TextDelta {
			text.WriteString(e.Text)
		}
	}
	return text.String()
}

func (b *bench) kinds() []agent.EventKind {
	var kinds []agent.EventKind
	for _, e := range b.events {
		if e.Kind != agent.TextDelta {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

func registry(t *testing.T) *tool.Registry {
	t.Helper()
	path := json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)
	r, err := tool.NewRegistry(
		tool.Spec{Name: "now", Effect: tool.Read},
		tool.Spec{Name: "read", Effect: tool.Read, Parameters: path, PathArguments: []string{"path"}},
		tool.Spec{Name: "put", Effect: tool.Idempotent},
		tool.Spec{Name: "send", Effect: tool.Unsafe},
	)
	require.NoError(t, err)
	return r
}

// quick is a configuration whose waits are over at once.
func quick() agent.Config {
	return agent.Config{ModelName: "m", System: "be brief", Retry: agent.Retry{Initial: time.Millisecond, Max: time.Millisecond}}
}

func loop(t *testing.T, b *bench, cfg agent.Config, m llm.Model) *agent.Loop {
	t.Helper()
	l, err := agent.New(cfg, agent.Deps{Model: m, Tools: registry(t), Executor: b})
	require.NoError(t, err)
	return l
}

func run(prompt string) agent.Run {
	return agent.Run{ID: "run", Session: "skey", Tenant: "t", User: "u", Prompt: []agent.Prompt{{Message: user(prompt), InboxSeq: 7}}}
}

// do runs a turn to its end and stores the result like the last statement of a run does.
func (b *bench) do(t *testing.T, cfg agent.Config, m llm.Model, r agent.Run) agent.Result {
	t.Helper()
	result, err := loop(t, b, cfg, m).Run(t.Context(), r, b, b.observe)
	require.NoError(t, err)
	b.keep(result.Entries, result.Calls)
	requirePaired(t, b.stored())
	return result
}

// requirePaired checks that every call has exactly one result right behind its message, and ids are unique.
func requirePaired(t *testing.T, messages []llm.Message) {
	t.Helper()
	seen := map[string]bool{}
	for i := 0; i < len(messages); {
		m := messages[i]
		i++
		require.NotEqual(t, llm.Tool, m.Role, "result without a call at %d", i-1)
		require.True(t, m.Text != "" || len(m.ToolCalls) > 0, "message without content at %d", i-1)
		for _, c := range m.ToolCalls {
			require.False(t, seen[c.ID], "id %s twice", c.ID)
			seen[c.ID] = true
			require.True(t, json.Valid([]byte(c.Arguments)), "arguments %q", c.Arguments)
			require.Less(t, i, len(messages), "call %s without a result", c.ID)
			require.Equal(t, c.ID, messages[i].ToolCallID)
			require.NotEmpty(t, messages[i].Text)
			i++
		}
	}
}

// wire is a loop on the real protocol.
func wire(t *testing.T, script fakemodel.Script) (*fakemodel.Server, llm.Model) {
	t.Helper()
	server := fakemodel.Start(t, script)
	transport := newTransport(t)
	return server, openai.New(openai.Config{BaseURL: server.URL, Model: "m", Transport: transport})
}
