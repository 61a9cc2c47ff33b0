package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

var askedAt = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// asking is a loop whose agent may ask.
func asking(t *testing.T, b *bench, m llm.Model) *agent.Loop {
	t.Helper()
	tools, err := tool.NewRegistry(append(registry(t).Specs(), agent.AskUserSpec())...)
	require.NoError(t, err)
	l, err := agent.New(quick(), agent.Deps{Model: m, Tools: tools, Executor: b, Now: func() time.Time { return askedAt }})
	require.NoError(t, err)
	return l
}

// suspended runs until the question.
func (b *bench) suspended(t *testing.T, m llm.Model, r agent.Run) *agent.Question {
	t.Helper()
	result, err := asking(t, b, m).Run(t.Context(), r, b, b.observe)
	require.ErrorIs(t, err, agent.ErrSuspended)
	require.Equal(t, agent.Suspended, result.Outcome)
	b.keep(result.Entries, result.Calls)
	require.NotNil(t, result.Question)
	return result.Question
}

// resumed is the run as another worker finds it.
func (b *bench) resumed(answer func(agent.Question) *agent.Answer) agent.Run {
	r := run("go")
	r.Stored, r.Calls = b.entries, b.ledger()
	r.Answer = func(_ context.Context, q agent.Question) (*agent.Answer, error) { return answer(q), nil }
	return r
}

func yes(agent.Question) *agent.Answer {
	return &agent.Answer{Result: tool.Result{Outcome: tool.OK, Content: "yes"}, InboxSeq: 9}
}

func TestAsk_SuspendsTheRunOnceItsIntentIsStored(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{
		call("q", agent.AskUser, `{"question":"Send it?","options":["yes","no"],"timeout":60,"until":"1999-01-01T00:00:00Z"}`),
	}}}}
	q := b.suspended(t, m, run("go"))
	require.Equal(t, agent.Question{
		CallID: "q", Text: "Send it?", Options: []string{"yes", "no"}, Until: askedAt.Add(time.Minute),
	}, *q)
	require.Equal(t, []string{"checkpoint 1:user 2:assistant q=intent"}, b.log)
	require.Empty(t, b.executed)
}

func TestAsk_WaitsForADayUnlessTold(t *testing.T) {
	t.Parallel()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("q", agent.AskUser, `{"question":"Which?"}`)}}}}
	require.Equal(t, askedAt.Add(24*time.Hour), newBench().suspended(t, m, run("go")).Until)
}

func TestAsk_TheAnswerIsTheResultAndIsStoredBeforeTheModelReadsIt(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{
		{calls: []llm.ToolCall{call("q", agent.AskUser, `{"question":"Send it?"}`)}},
		{text: "done", before: func() { b.note("model") }},
	}}
	first := b.suspended(t, m, run("go"))
	b.log = nil
	var asked agent.Question
	result, err := asking(t, b, m).Run(t.Context(), b.resumed(func(q agent.Question) *agent.Answer {
		asked = q
		return yes(q)
	}), b, b.observe)
	require.NoError(t, err)
	require.Equal(t, *first, asked, "it expires when it did before")
	require.Equal(t, "done", result.Text)
	require.Equal(t, []string{"checkpoint 3:tool q=done", "model"}, b.log)
	require.Equal(t, int64(9), b.entries[2].InboxSeq)
	require.Equal(t, agent.Event{Kind: agent.Answered, Tool: agent.AskUser, CallID: "q", Outcome: "ok"}, b.events[len(b.events)-4])
	b.keep(result.Entries, result.Calls)
	requirePaired(t, b.stored())
	require.Equal(t, got("q", "yes"), b.stored()[2])
}

func TestAsk_ARunThatIsWokenWithoutAnAnswerWaitsOn(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("q", agent.AskUser, `{"question":"Send it?"}`)}}}}
	first := b.suspended(t, m, run("go"))
	again := b.suspended(t, m, b.resumed(func(agent.Question) *agent.Answer { return nil }))
	require.Equal(t, first, again)
	require.Len(t, m.requests, 1)
}

func TestAsk_CallsBeforeItAreExecutedAndThoseBehindItWait(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{
		{calls: []llm.ToolCall{
			call("a", "now", ""), call("q", agent.AskUser, `{"question":"Send it?"}`), call("b", "now", ""), call("c", "send", ""),
		}},
		{text: "done"},
	}}
	b.suspended(t, m, run("go"))
	require.Equal(t, []string{"checkpoint 1:user 2:assistant a=intent q=intent b=intent c=intent", "start a", "end a"}, b.log)
	require.Equal(t, agent.CallFailed, b.calls["c"].State, "an unsafe call that was not started must not look as if it was")
	require.Equal(t, []agent.CallState{agent.CallIntent, agent.CallIntent}, []agent.CallState{b.calls["q"].State, b.calls["b"].State})

	b.log = nil
	result, err := asking(t, b, m).Run(t.Context(), b.resumed(yes), b, b.observe)
	require.NoError(t, err)
	b.keep(result.Entries, result.Calls)
	requirePaired(t, b.stored())
	require.Equal(t, []string{"checkpoint 4:tool q=done", "start b", "end b"}, b.log)
	require.Equal(t, []llm.Message{
		got("a", "now ok"), got("q", "yes"), got("b", "now ok"), failed("c", "interrupted: the call was not started"), said("done"),
	}, b.stored()[2:])
}

func TestAsk_TwoQuestionsAreAskedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{
		call("q", agent.AskUser, `{"question":"First?"}`), call("r", agent.AskUser, `{"question":"Second?"}`),
	}}, {text: "done"}}}
	require.Equal(t, "First?", b.suspended(t, m, run("go")).Text)
	second := b.suspended(t, m, b.resumed(func(q agent.Question) *agent.Answer {
		if q.CallID == "q" {
			return yes(q)
		}
		return nil
	}))
	require.Equal(t, "Second?", second.Text)
	result, err := asking(t, b, m).Run(t.Context(), b.resumed(yes), b, b.observe)
	require.NoError(t, err)
	require.Equal(t, "done", result.Text)
}

func TestAsk_AnAnswerThatCannotBeReadEndsTheRun(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("q", agent.AskUser, `{"question":"Send it?"}`)}}}}
	r := run("go")
	r.Answer = func(context.Context, agent.Question) (*agent.Answer, error) { return nil, agent.ErrFenced }
	_, err := asking(t, b, m).Run(t.Context(), r, b, b.observe)
	require.ErrorIs(t, err, agent.ErrFenced)
}

func TestAsk_NoAnswerIsAResult(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("q", agent.AskUser, `{"question":"Send it?"}`)}}, {text: "done"}}}
	b.suspended(t, m, run("go"))
	_, err := asking(t, b, m).Run(t.Context(), b.resumed(func(agent.Question) *agent.Answer {
		return &agent.Answer{Result: tool.Result{Outcome: tool.Timeout, Content: "nobody there"}}
	}), b, b.observe)
	require.NoError(t, err)
	require.Equal(t, failed("q", "nobody there"), b.stored()[2])
	require.Equal(t, agent.CallFailed, b.calls["q"].State)
}

func TestAsk_AStopWhileItWaitsAsksNobody(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("q", agent.AskUser, `{"question":"Send it?"}`)}}}}
	b.suspended(t, m, run("go"))
	ctx, stop := context.WithCancelCause(t.Context())
	stop(agent.ErrStopped)
	result, err := asking(t, b, m).Run(ctx, b.resumed(func(agent.Question) *agent.Answer {
		t.Error("nobody needs the answer")
		return nil
	}), b, b.observe)
	require.ErrorIs(t, err, agent.ErrStopped)
	b.keep(result.Entries, result.Calls)
	requirePaired(t, b.stored())
	require.Nil(t, result.Question)
}

func TestAsk_ArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{
		{calls: []llm.ToolCall{call("q", agent.AskUser, `{"question":"","timeout":1}`)}}, {text: "sorry"},
	}}
	result, err := asking(t, b, m).Run(t.Context(), run("go"), b, b.observe)
	require.NoError(t, err)
	require.Equal(t, "sorry", result.Text)
	require.True(t, json.Valid([]byte(m.requests[1].Messages[1].ToolCalls[0].Arguments)))
	require.Contains(t, m.requests[1].Messages[2].Text, "not executed")
}

func TestAsk_NeedsNoExecutor(t *testing.T) {
	t.Parallel()
	tools, err := tool.NewRegistry(agent.AskUserSpec())
	require.NoError(t, err)
	_, err = agent.New(quick(), agent.Deps{Model: &scripted{}, Tools: tools})
	require.NoError(t, err)
	_, err = agent.New(quick(), agent.Deps{Model: &scripted{}, Tools: registry(t)})
	require.EqualError(t, err, "agent: executor: must not be nil where there are tools")
}

func TestAdded_StandsBehindTheResultsAndIsStoredAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{
		{calls: []llm.ToolCall{call("a", "now", ""), call("b", "now", "")}},
		{text: "both", before: func() { b.note("model") }},
	}}
	r := run("go")
	looks := 0
	r.Added = func(context.Context) ([]agent.Prompt, error) {
		if looks++; looks < 2 {
			return nil, nil
		}
		return []agent.Prompt{{Message: user("and this"), InboxSeq: 8}, {Message: user("\x00"), InboxSeq: 9}}, nil
	}
	result := b.do(t, quick(), m, r)
	require.Equal(t, "both", result.Text)
	require.Equal(t, "checkpoint 3:tool 4:tool 5:user 6:user a=done b=done", b.log[len(b.log)-2])
	require.Equal(t, "model", b.log[len(b.log)-1])
	require.Equal(t, []llm.Message{
		user("go"), asked(call("a", "now", "{}"), call("b", "now", "{}")), got("a", "now ok"), got("b", "now ok"),
		user("and this"), user("(empty message)"),
	}, m.requests[1].Messages)
	require.Equal(t, []int64{8, 9}, []int64{b.entries[4].InboxSeq, b.entries[5].InboxSeq})
}

func TestAdded_IsNotAskedForOnceTheAnswerIsThere(t *testing.T) {
	t.Parallel()
	b := newBench()
	looks := 0
	r := run("go")
	r.Added = func(context.Context) ([]agent.Prompt, error) {
		looks++
		return nil, nil
	}
	b.do(t, quick(), &scripted{turns: []turn{{text: "answer"}}}, r)
	require.Equal(t, 1, looks, "only before the model call")
}

func TestAdded_ErrorsEndTheRun(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := run("go")
	r.Added = func(context.Context) ([]agent.Prompt, error) { return nil, agent.ErrFenced }
	m := &scripted{turns: []turn{{text: "answer"}}}
	_, err := loop(t, b, quick(), m).Run(t.Context(), r, b, b.observe)
	require.ErrorIs(t, err, agent.ErrFenced)
	require.Empty(t, m.requests)
}

func TestCheck_IsAskedBeforeEachModelCallAndToolStart(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := run("go")
	r.Check = func(context.Context) error {
		b.note("check")
		return nil
	}
	b.do(t, quick(), &scripted{turns: []turn{
		{calls: []llm.ToolCall{call("a", "send", "")}, before: func() { b.note("model") }}, {text: "done", before: func() { b.note("model") }},
	}}, r)
	require.Equal(t, []string{
		"check", "model", "checkpoint 1:user 2:assistant a=intent", "check", "start a", "end a", "checkpoint a=done",
		"check", "model",
	}, b.log)
}

func TestCheck_ARunThatIsNotHeldStartsNothing(t *testing.T) {
	t.Parallel()
	gone := errors.New("deadline")
	for name, allowed := range map[string]int{"no model call": 0, "no tool": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			r := run("go")
			checks := 0
			r.Check = func(context.Context) error {
				if checks++; checks > allowed {
					return errors.Join(agent.ErrFenced, gone)
				}
				return nil
			}
			m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "send", "")}}}}
			_, err := loop(t, b, quick(), m).Run(t.Context(), r, b, b.observe)
			require.ErrorIs(t, err, agent.ErrFenced)
			require.ErrorIs(t, err, gone)
			require.Len(t, m.requests, allowed)
			require.Empty(t, b.executed)
		})
	}
}
