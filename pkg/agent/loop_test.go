package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

func TestRun_AnswersWithoutToolsAndWithoutCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{text: "four, I think"}}}
	r := run("what is 2+2?")
	r.History = []llm.Message{user("hi"), said("hello")}
	r.Notes = "It is Monday."
	result := b.do(t, quick(), m, r)

	require.Equal(t, agent.Done, result.Outcome)
	require.Equal(t, "four, I think", result.Text)
	require.Equal(t, 1, result.Steps)
	require.Equal(t, 2, result.HistoryUsed)
	require.Equal(t, llm.Usage{InputTokens: 10, OutputTokens: 1}, result.Usage)
	require.Equal(t, []agent.Entry{
		{N: 1, Message: user("what is 2+2?"), InboxSeq: 7}, {N: 2, Message: said("four, I think")},
	}, result.Entries)
	require.Zero(t, b.checkpoints)
	require.Equal(t, "four, I think", b.shown())

	req := m.requests[0]
	require.Equal(t, "m", req.Model)
	require.Equal(t, "be brief\n\nIt is Monday.", req.System)
	require.Equal(t, []llm.Message{user("hi"), said("hello"), user("what is 2+2?")}, req.Messages)
	require.Len(t, req.Tools, 4)
	require.Equal(t, "now", req.Tools[0].Name)
}

func TestRun_CheckpointsBeforeToolsAndGoesOnWithTheirResults(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{
		{text: "let me look", calls: []llm.ToolCall{call("a", "read", `{"path":" x.txt "}`)}},
		{text: "it says ok"},
	}}
	result := b.do(t, quick(), m, run("read x.txt"))

	require.Equal(t, []string{"checkpoint 1:user 2:assistant a=intent", "start a", "end a"}, b.log)
	require.Equal(t, agent.Entry{N: 1, Message: user("read x.txt"), InboxSeq: 7}, b.entries[0])
	require.Equal(t, agent.CallDone, b.calls["a"].State)
	require.Equal(t, "read ok", b.calls["a"].Result.Content)
	require.Len(t, result.Entries, 2, "result and answer ride with the end of the run")

	require.Len(t, b.executed, 1)
	req := b.executed[0]
	require.Equal(t, "run:a", req.IdemKey)
	require.Equal(t, []string{"run", "a", "skey", "t", "u", "read"}, []string{req.RunID, req.CallID, req.Session, req.Tenant, req.User, req.Name})
	require.JSONEq(t, `{"path":"x.txt"}`, string(req.Arguments))
	require.False(t, req.Deadline.IsZero())

	require.Equal(t, []llm.Message{
		user("read x.txt"),
		{Role: llm.Assistant, Text: "let me look", ToolCalls: []llm.ToolCall{call("a", "read", `{"path":"x.txt"}`)}},
		got("a", "read ok"),
	}, m.requests[1].Messages)
	require.Equal(t, []agent.EventKind{
		agent.LLMStarted, agent.LLMFinished, agent.StepEnded, agent.ToolStarted, agent.ToolFinished, agent.LLMStarted, agent.LLMFinished,
	}, b.kinds())
}

func TestRun_StoresResultsOfUnsafeCallsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{
		{calls: []llm.ToolCall{call("a", "put", ""), call("b", "send", ""), call("c", "send", ""), call("d", "now", "")}},
		{text: "done"},
	}}
	b.do(t, quick(), m, run("go"))
	require.Equal(t, []string{
		"checkpoint 1:user 2:assistant a=intent b=intent c=intent d=intent",
		"start a", "end a",
		"start b", "end b", "checkpoint a=done b=done",
		"start c", "end c", "checkpoint c=done",
		"start d", "end d",
	}, b.log)
	require.Equal(t, []llm.Message{got("a", "put ok"), got("b", "send ok"), got("c", "send ok"), got("d", "now ok")}, m.requests[1].Messages[2:])
}

func TestRun_ReadsInParallelAndKeepsTheOrderOfCalls(t *testing.T) {
	t.Parallel()
	b := newBench()
	// Each read waits for the next one to have begun, so that the test only ends if all three run at once, and they end in
	// reverse order.
	begun := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{}), "c": make(chan struct{})}
	ended := map[string]chan struct{}{"b": make(chan struct{}), "c": make(chan struct{})}
	next := map[string]string{"a": "b", "b": "c"}
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"now": func(_ context.Context, req tool.Request, progress func(string)) (tool.Result, error) {
			close(begun[req.CallID])
			progress("working on " + req.CallID)
			if n := next[req.CallID]; n != "" {
				<-begun[n]
				<-ended[n]
			}
			if done := ended[req.CallID]; done != nil {
				close(done)
			}
			return tool.Result{Outcome: tool.OK, Content: "result of " + req.CallID}, nil
		},
	}
	m := &scripted{turns: []turn{
		{calls: []llm.ToolCall{call("a", "now", ""), call("b", "now", ""), call("c", "now", ""), call("d", "send", "")}},
		{text: "done"},
	}}
	b.do(t, quick(), m, run("go"))
	require.Equal(t, []llm.Message{
		got("a", "result of a"), got("b", "result of b"), got("c", "result of c"), got("d", "send ok"),
	}, m.requests[1].Messages[2:])
	require.Equal(t, "start d", b.log[len(b.log)-3], "a call with effect waits for the reads before it: %v", b.log)
}

func TestRun_BoundsParallelReads(t *testing.T) {
	t.Parallel()
	b := newBench()
	running, most := 0, 0
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"now": func(context.Context, tool.Request, func(string)) (tool.Result, error) {
			b.mu.Lock()
			running++
			most = max(most, running)
			b.mu.Unlock()
			defer func() {
				b.mu.Lock()
				running--
				b.mu.Unlock()
			}()
			return tool.Result{Outcome: tool.OK}, nil
		},
	}
	var calls []llm.ToolCall
	for i := range 20 {
		calls = append(calls, call(fmt.Sprint("c", i), "now", ""))
	}
	cfg := quick()
	cfg.ParallelTools = 2
	b.do(t, cfg, &scripted{turns: []turn{{calls: calls}, {text: "done"}}}, run("go"))
	require.Len(t, b.executed, 20)
	require.LessOrEqual(t, most, 2)
}

func TestAGT03_TheLoopGoesOnAfterEachShapeOfArguments(t *testing.T) {
	t.Parallel()
	b := newBench()
	var replies []fakemodel.Reply
	for _, c := range []fakemodel.Call{
		{ID: "a", Name: "now"},
		{ID: "b", Name: "now", Arguments: "null"},
		{ID: "c", Name: "now", Arguments: "  {}\n"},
		{ID: "d", Name: "now"},
		{ID: "e", Name: "now", Arguments: "{}{}"},
		{ID: "f", Name: "read"},
		{ID: "g", Name: "read", Arguments: `{"path":"notes/a`},
		{ID: "h", Name: "read", Arguments: `{"path":"notes/a.txt"}{"path":"notes/b.txt"}`},
		{ID: "i", Name: "read", Arguments: `"{\"path\":\"notes/a.txt\"}"`},
		{ID: "j", Name: "read", Arguments: `["notes/a.txt"]`},
		{ID: "k", Name: "read", Arguments: `{"path":null}`},
	} {
		replies = append(replies, fakemodel.Reply{Calls: []fakemodel.Call{c}})
	}
	server, m := wire(t, fakemodel.Sequence(append(replies, fakemodel.Reply{Text: "that is all"})...))
	result := b.do(t, quick(), m, run("try all"))
	require.Equal(t, "that is all", result.Text)

	var executed []string
	for _, req := range b.executed {
		executed = append(executed, req.CallID+" "+string(req.Arguments))
	}
	require.Equal(t, []string{"a {}", "b {}", "c {}", "d {}", `i {"path":"notes/a.txt"}`}, executed)

	requests := server.Requests()
	results := map[string]string{}
	for _, message := range requests[len(requests)-1].Messages {
		if message.Role == "tool" {
			results[message.ToolCallID] = message.Content
		}
	}
	for _, id := range []string{"e", "g", "h", "j"} {
		require.Contains(t, results[id], "error: not executed: arguments are not one JSON object", id)
	}
	for _, id := range []string{"f", "k"} {
		require.Contains(t, results[id], "error: not executed: invalid arguments: path: ", id)
	}
	require.Len(t, results, 11)
}

func TestAGT04_TwoToolCallsWithTheSameID(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"read": func(_ context.Context, req tool.Request, _ func(string)) (tool.Result, error) {
			return tool.Result{Outcome: tool.OK, Content: string(req.Arguments)}, nil
		},
	}
	read := func(path string) llm.ToolCall { return call("call_1", "read", `{"path":"`+path+`"}`) }
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{read("x"), read("y")}}, {text: "first turn done"}}}
	b.do(t, quick(), m, run("search"))
	history := b.stored()
	require.Equal(t, []llm.Message{got("call_1", `{"path":"x"}`), got("call_1_2", `{"path":"y"}`)}, history[2:4])

	next := newBench()
	next.tools = b.tools
	m = &scripted{turns: []turn{{calls: []llm.ToolCall{read("z")}}, {text: "second turn done"}}}
	r := run("search more")
	r.History = history
	next.do(t, quick(), m, r)
	require.Len(t, next.executed, 1)
	require.JSONEq(t, `{"path":"z"}`, string(next.executed[0].Arguments))
	require.Equal(t, "call_1_3", next.executed[0].CallID)
	requirePaired(t, m.requests[1].Messages)
}

func TestAGT05_UnknownToolsAreAnsweredAndEndAfterThreeStrikes(t *testing.T) {
	t.Parallel()
	b := newBench()
	bad := turn{calls: []llm.ToolCall{call("x", "read_file", `{}`)}}
	m := &scripted{turns: []turn{bad, bad, {calls: []llm.ToolCall{call("g", " Read ", `{"path":"notes/a.txt"}`)}}, bad}}
	result := b.do(t, quick(), m, run("read it"))

	require.Equal(t, agent.GaveUp, result.Outcome)
	require.Equal(t, "Sorry, I could not finish this: I kept asking for tools that I do not have (read_file). "+
		"Available tools: now, put, read, send.", result.Text)
	require.Len(t, m.requests, 6)
	require.Len(t, b.executed, 1, "' Read ' is the tool read")
	require.Equal(t, "read", b.executed[0].Name)
	messages := m.requests[1].Messages
	require.Equal(t, failed("x", `not executed: there is no tool "read_file". Available tools: now, put, read, send.`), messages[len(messages)-1])
	stored := b.stored()
	require.Equal(t, said(result.Text), stored[len(stored)-1])
}

func TestRun_MixedBatchRunsTheGoodCalls(t *testing.T) {
	t.Parallel()
	b := newBench()
	batch := turn{calls: []llm.ToolCall{call("a", "nope", ""), call("b", "send", ""), call("c", "read", "[]"), call("d", "", "")}}
	m := &scripted{turns: []turn{batch, batch, batch, batch, {text: "done"}}}
	result := b.do(t, quick(), m, run("go"))
	require.Equal(t, agent.Done, result.Outcome, "a step with a known tool is no strike")
	require.Len(t, b.executed, 4)
	require.Equal(t, "checkpoint 1:user 2:assistant 3:tool 5:tool 6:tool b=intent", b.log[0],
		"refusals are stored with the call, so that no later attempt executes it")
	results := m.requests[1].Messages[2:]
	require.Equal(t, "send ok", results[1].Text)
	require.Equal(t, failed("d", "not executed: the call names no tool"), results[3])
}

func TestRun_BudgetEndsWithOneCallWithoutTools(t *testing.T) {
	t.Parallel()
	b := newBench()
	step := turn{calls: []llm.ToolCall{call("a", "now", "")}}
	m := &scripted{turns: []turn{step, step, step, {text: "I looked three times."}}}
	cfg := quick()
	cfg.Steps = 3
	result := b.do(t, cfg, m, run("go"))
	require.Equal(t, agent.Budget, result.Outcome)
	require.Equal(t, "I looked three times.", result.Text)
	require.Len(t, m.requests, 4)
	require.Len(t, m.requests[2].Tools, 4)
	grace := m.requests[3]
	require.Empty(t, grace.Tools)
	require.Contains(t, grace.Messages[len(grace.Messages)-1].Text, "can call no more tools")
	for _, message := range b.stored() {
		require.NotContains(t, message.Text, "can call no more tools", "notes to the model are not history")
	}
}

func TestRun_BudgetStillAnswersIfTheLastCallSaysNothingOrFails(t *testing.T) {
	t.Parallel()
	step := turn{calls: []llm.ToolCall{call("a", "now", "")}}
	for name, last := range map[string]turn{
		"nothing": {}, "calls again": step, "fails": {err: &llm.Error{Kind: llm.KindAuth}},
	} {
		b := newBench()
		cfg := quick()
		cfg.Steps = 1
		result := b.do(t, cfg, &scripted{turns: []turn{step, last}}, run("go"))
		require.Equal(t, agent.Budget, result.Outcome, name)
		require.Equal(t, "I reached my limit of steps for one message (1) before I was done. Write to me if I should go on.", result.Text)
		require.Len(t, b.executed, 1)
	}
}

func TestAGT09_TheModelEndsARunWithNoText(t *testing.T) {
	t.Parallel()
	empty := turn{}
	for name, c := range map[string]struct {
		turns   []turn
		text    string
		outcome agent.Outcome
	}{
		"text beside the last call": {[]turn{{text: "I saved it.", calls: []llm.ToolCall{call("a", "send", "")}}, empty}, "I saved it.", agent.Done},
		"call without text":         {[]turn{{calls: []llm.ToolCall{call("a", "send", "")}}, empty}, "I have no answer to that. Please put it in other words.", agent.GaveUp},
		"nothing at all":            {[]turn{empty}, "I have no answer to that. Please put it in other words.", agent.GaveUp},
		"blank":                     {[]turn{{text: " \n"}}, "I have no answer to that. Please put it in other words.", agent.GaveUp},
		"words after the nudge":     {[]turn{empty, {text: "sorry, here"}}, "sorry, here", agent.Done},
		"blocked by the provider":   {[]turn{{finish: llm.FinishFilter}}, "The provider of my model blocked this answer. Please put it in other words.", agent.GaveUp},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			m := &scripted{turns: c.turns}
			result := b.do(t, quick(), m, run("go"))
			require.Equal(t, c.text, result.Text)
			require.Equal(t, c.outcome, result.Outcome)
			for _, message := range b.stored() {
				require.False(t, strings.TrimSpace(message.Text) == "" && len(message.ToolCalls) == 0)
			}
		})
	}
}

func TestRun_NudgesOnlyOnce(t *testing.T) {
	t.Parallel()
	m := &scripted{turns: []turn{{}}}
	newBench().do(t, quick(), m, run("go"))
	require.Len(t, m.requests, 2)
	require.Equal(t, user("Your last reply was empty. Answer now, in words."), m.requests[1].Messages[1])
}

func TestRun_ContinuesAnAnswerThatWasCutAtTheOutputLimit(t *testing.T) {
	t.Parallel()
	b := newBench()
	cut := func(text string) turn { return turn{text: text, finish: llm.FinishLength} }
	m := &scripted{turns: []turn{cut("one "), cut("two "), {text: "three"}}}
	result := b.do(t, quick(), m, run("count"))
	require.Equal(t, "one two three", result.Text)
	require.Equal(t, "one two three", b.shown())
	require.Equal(t, []llm.Message{user("count"), said("one two three")}, b.stored())
	last := m.requests[2].Messages
	require.Equal(t, said("one two "), last[1])
	require.Contains(t, last[2].Text, "Continue exactly where it stopped")
	require.Equal(t, 1, result.Steps, "it is one answer")
	require.Equal(t, llm.Usage{InputTokens: 30, OutputTokens: 3}, result.Usage)

	m = &scripted{turns: []turn{cut("again ")}}
	result = newBench().do(t, quick(), m, run("count"))
	require.Len(t, m.requests, 4, "at most three continuations")
	require.Equal(t, "again again again again ", result.Text)
}

func TestRun_RefusesCallsThatWereCutAtTheOutputLimit(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{
		{finish: llm.FinishLength, calls: []llm.ToolCall{call("a", "send", `{}`), call("b", "read", `{"path":"x`)}},
		{text: "shorter then"},
	}}
	b.do(t, quick(), m, run("go"))
	require.Empty(t, b.executed)
	for _, message := range m.requests[1].Messages[2:] {
		require.Contains(t, message.Text, "your output was cut off")
		require.True(t, message.ToolError)
	}
}

func TestRun_StopOfTheJournalEndsTheRunBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.onCheckpoint = func(int) (agent.Signal, error) { return agent.Signal{Stop: true}, nil }
	m := &scripted{turns: []turn{{text: "I will send", calls: []llm.ToolCall{call("a", "send", "")}}}}
	result, err := loop(t, b, quick(), m).Run(t.Context(), run("go"), b, nil)
	require.ErrorIs(t, err, agent.ErrStopped)
	require.Equal(t, agent.Stopped, result.Outcome)
	require.Empty(t, b.executed)
	b.keep(result.Entries, result.Calls)
	requirePaired(t, b.stored())
	require.Equal(t, agent.CallFailed, b.calls["a"].State)
	require.Equal(t, failed("a", "interrupted: the call was not started"), b.stored()[2])
}

func TestRun_StopDuringTheStreamKeepsWhatWasShown(t *testing.T) {
	t.Parallel()
	b := newBench()
	ctx, cancel := context.WithCancelCause(t.Context())
	l := loop(t, b, quick(), &scripted{turns: []turn{{text: "half of an answer"}}})
	result, err := l.Run(ctx, run("go"), b, func(_ context.Context, e agent.Event) {
		if e.Kind == agent.TextDelta {
			cancel(agent.ErrStopped)
		}
	})
	require.ErrorIs(t, err, agent.ErrStopped)
	require.Equal(t, "half of an answer", result.Text)
	require.Equal(t, []agent.Entry{{N: 1, Message: user("go"), InboxSeq: 7}, {N: 2, Message: said("half of an answer")}}, result.Entries)
}

func TestRun_StopDuringToolsClosesEveryCall(t *testing.T) {
	t.Parallel()
	b := newBench()
	ctx, cancel := context.WithCancelCause(t.Context())
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"send": func(ctx context.Context, _ tool.Request, _ func(string)) (tool.Result, error) {
			cancel(agent.ErrStopped)
			<-ctx.Done()
			return tool.Result{}, context.Cause(ctx)
		},
	}
	m := &scripted{turns: []turn{{text: "working", calls: []llm.ToolCall{
		call("a", "put", ""), call("b", "send", ""), call("c", "send", ""), call("d", "now", ""),
	}}}}
	result, err := loop(t, b, quick(), m).Run(ctx, run("go"), b, b.observe)
	require.ErrorIs(t, err, agent.ErrStopped)
	require.Empty(t, result.Text, "the preamble is part of the stored message")
	b.keep(result.Entries, result.Calls)
	requirePaired(t, b.stored())
	require.Equal(t, []string{"a", "b"}, []string{b.executed[0].CallID, b.executed[1].CallID})
	require.Len(t, b.executed, 2, "nothing starts after a stop")
	require.Equal(t, agent.CallDone, b.calls["a"].State)
	require.Equal(t, agent.CallUnknown, b.calls["b"].State)
	require.Equal(t, agent.CallFailed, b.calls["c"].State)
	require.Equal(t, agent.CallFailed, b.calls["d"].State)
	require.Equal(t, []llm.Message{
		got("a", "put ok"), failed("b", "outcome unknown: the action may have happened; verify before repeating"),
		failed("c", "interrupted: the call was not started"), failed("d", "interrupted: the call was not started"),
	}, b.stored()[2:])
}

func TestRun_ResultOfAnUnsafeCallIsStoredAlsoAfterAStop(t *testing.T) {
	t.Parallel()
	b := newBench()
	ctx, cancel := context.WithCancelCause(t.Context())
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"send": func(context.Context, tool.Request, func(string)) (tool.Result, error) {
			cancel(agent.ErrStopped)
			return tool.Result{Outcome: tool.OK, Content: "sent"}, nil
		},
	}
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "send", ""), call("b", "send", "")}}}}
	_, err := loop(t, b, quick(), m).Run(ctx, run("go"), b, nil)
	require.ErrorIs(t, err, agent.ErrStopped)
	require.Equal(t, "checkpoint a=done", b.log[len(b.log)-1])
	require.Len(t, b.executed, 1)
}

func TestRun_FencedEndsAtOnceWithoutAnyFurtherEffect(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		b := newBench()
		b.onCheckpoint = func(c int) (agent.Signal, error) {
			if c == n {
				return agent.Signal{}, fmt.Errorf("store: %w", agent.ErrFenced)
			}
			return agent.Signal{}, nil
		}
		m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "send", ""), call("b", "send", "")}}, {text: "done"}}}
		result, err := loop(t, b, quick(), m).Run(t.Context(), run("go"), b, nil)
		require.ErrorIs(t, err, agent.ErrFenced)
		require.Zero(t, result)
		require.Len(t, b.executed, n-1)
		require.Len(t, m.requests, 1)
	}
}

func TestRun_FencedByTheExecutorEndsTheRun(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"now": func(context.Context, tool.Request, func(string)) (tool.Result, error) {
			return tool.Result{}, fmt.Errorf("lease is over: %w", agent.ErrFenced)
		},
	}
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "now", ""), call("b", "send", "")}}}}
	_, err := loop(t, b, quick(), m).Run(t.Context(), run("go"), b, nil)
	require.ErrorIs(t, err, agent.ErrFenced)
	require.Len(t, b.executed, 1)
}

func TestRun_OtherErrorsOfTheJournalEndTheRunToo(t *testing.T) {
	t.Parallel()
	b := newBench()
	handover := fmt.Errorf("handed over")
	b.onCheckpoint = func(int) (agent.Signal, error) { return agent.Signal{}, handover }
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "now", "")}}}}
	_, err := loop(t, b, quick(), m).Run(t.Context(), run("go"), b, nil)
	require.ErrorIs(t, err, handover)
	require.Empty(t, b.executed)
}

func TestRun_PanicOfAToolReachesTheGoroutineOfTheRun(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"now": func(context.Context, tool.Request, func(string)) (tool.Result, error) { panic("broken") },
	}
	l := loop(t, b, quick(), &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "now", "")}}}})
	require.PanicsWithValue(t, "tool now: broken", func() { _, _ = l.Run(t.Context(), run("go"), b, nil) })
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := agent.New(agent.Config{}, agent.Deps{})
	require.EqualError(t, err, "agent: model: must not be nil")
	_, err = agent.New(agent.Config{}, agent.Deps{Model: &scripted{}, Tools: registry(t)})
	require.EqualError(t, err, "agent: executor: must not be nil where there are tools")
	_, err = agent.New(agent.Config{}, agent.Deps{Model: &scripted{}})
	require.NoError(t, err)
}
