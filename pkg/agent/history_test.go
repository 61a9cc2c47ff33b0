package agent_test

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

func TestAGT01_HistoryEndsWithAToolCallThatHasNoResult(t *testing.T) {
	t.Parallel()
	b := newBench()
	server, m := wire(t, fakemodel.Sequence(fakemodel.Reply{Text: "it is 4"}))
	r := run("never mind, what is 2+2?")
	r.History = []llm.Message{user("list files"), asked(call("t1", "list_files", "{}"))}
	first, err := loop(t, b, quick(), m).Run(t.Context(), r, b, nil)
	require.NoError(t, err)
	b.keep(first.Entries, nil)

	sent := server.Requests()[0].Messages
	require.Equal(t, "tool", sent[3].Role)
	require.Equal(t, "t1", sent[3].ToolCallID)
	require.Equal(t, "error: interrupted: the call did not finish", sent[3].Content)
	require.Equal(t, fakemodel.Message{Role: "user", Content: "never mind, what is 2+2?"}, sent[4])
	require.Empty(t, b.executed)

	repaired := append(r.History, b.stored()...)
	requirePaired(t, repaired)
	next := newBench()
	r = run("thanks")
	r.History = repaired
	result := next.do(t, quick(), m, r)
	require.Len(t, result.Entries, 2, "the repair is stored: the next turn needs none")
	require.Len(t, server.Requests()[1].Messages, 7)
}

func TestAGT02_AWindowDoesNotBeginInsideAToolExchange(t *testing.T) {
	t.Parallel()
	history := []llm.Message{
		user("u1"), asked(call("t1", "f", "{}"), call("t2", "f", "{}")), got("t1", "r1"), got("t2", "r2"), said("done"), user("u2"), said("ok"),
	}
	for limit, want := range map[int][]llm.Message{
		4: {user("u2"), said("ok"), user("u3")}, 6: {user("u2"), said("ok"), user("u3")},
		7: append(append([]llm.Message{}, history...), user("u3")), 1: {user("u3")}, -1: {user("u3")},
		0: append(append([]llm.Message{}, history...), user("u3")),
	} {
		m := &scripted{turns: []turn{{text: "fine"}}}
		cfg := quick()
		cfg.HistoryLimit = limit
		r := run("u3")
		r.History = history
		newBench().do(t, cfg, m, r)
		require.Equal(t, want, m.requests[0].Messages, "limit %d", limit)
	}
}

func TestAGT06_LargeToolResultIsBoundedForTheModel(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"now": func(context.Context, tool.Request, func(string)) (tool.Result, error) {
			return tool.Result{Outcome: tool.OK, Content: "START\n" + strings.Repeat("水", 700000) + "\nEND exit 1"}, nil
		},
	}
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "now", "")}}, {text: "seen it"}}}
	cfg := quick()
	cfg.ToolResultBytes = 40000
	b.do(t, cfg, m, run("go"))
	text := m.requests[1].Messages[2].Text
	require.LessOrEqual(t, len(text), 40000)
	require.True(t, utf8.ValidString(text))
	require.True(t, strings.HasPrefix(text, "START"))
	require.True(t, strings.HasSuffix(text, "END exit 1"))
	require.True(t, b.calls["a"].Result.Truncated)
}

func TestAGT07_WhatIsStoredHasNoNULAndIsUTF8(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"now": func(context.Context, tool.Request, func(string)) (tool.Result, error) {
			return tool.Result{Outcome: tool.OK, Content: "ok\x00\x01\xff\xfe\x1b[31mred\x1b[0m"}, nil
		},
	}
	m := &scripted{turns: []turn{{text: "loo\x00k", calls: []llm.ToolCall{call("a", "now", "")}}, {text: "an\xffswer\x00"}}}
	b.do(t, quick(), m, run("pro\x00mpt\xff"))
	for _, message := range b.stored() {
		require.True(t, utf8.ValidString(message.Text))
		require.NotContains(t, message.Text, "\x00")
	}
	require.Equal(t, "prompt\uFFFD", b.stored()[0].Text)
	require.Equal(t, "look", b.stored()[1].Text)
	require.Contains(t, b.stored()[2].Text, "red")
	require.Equal(t, "an\uFFFDswer", b.stored()[3].Text)
}

func TestAGT08_EmptyAndBlankContentInTheHistory(t *testing.T) {
	t.Parallel()
	m := &scripted{turns: []turn{{text: "it means hello"}}}
	r := run("what does it mean?")
	exchange := asked(call("t1", "show", "{}"))
	r.History = []llm.Message{user("draw a word"), exchange, got("t1", ""), said(" \n")}
	newBench().do(t, quick(), m, r)
	require.Equal(t, []llm.Message{user("draw a word"), exchange, got("t1", "(no output)"), user("what does it mean?")}, m.requests[0].Messages)
}

func TestRequest_RepairsWhatAnyHistoryMayHold(t *testing.T) {
	t.Parallel()
	m := &scripted{turns: []turn{{text: "fine"}}}
	r := run("next")
	r.History = []llm.Message{
		user("a\x00b"), got("orphan", "x"),
		asked(call("d", "f", `{"cut`), call("d", "f", "")), got("d", "first"), got("d", "second"), got("d", "third"),
		user("middle"), asked(call("d", "f", "{}"), call("", "f", "{}")), got("other", "y"),
		user("end"),
	}
	newBench().do(t, quick(), m, r)
	require.Equal(t, []llm.Message{
		user("ab"),
		asked(call("d", "f", "{}"), call("d_2", "f", "{}")), got("d", "first"), got("d_2", "second"),
		user("middle"), asked(call("d_3", "f", "{}"), call("call", "f", "{}")),
		failed("d_3", "interrupted: the call did not finish"), failed("call", "interrupted: the call did not finish"),
		user("end"), user("next"),
	}, m.requests[0].Messages)
	require.Equal(t, "a\x00b", r.History[0].Text, "the history itself is not changed")
	require.Equal(t, `{"cut`, r.History[2].ToolCalls[0].Arguments)
}

func TestAGT14_ContextOverflowShortensTheHistoryOnly(t *testing.T) {
	t.Parallel()
	var history []llm.Message
	for range 40 {
		history = append(history, user("question"), said("answer"))
	}
	overflow := turn{err: &llm.Error{Kind: llm.KindContextOverflow, Status: 400}}
	m := &scripted{turns: []turn{overflow, overflow, {text: "your first question was lost"}}}
	b := newBench()
	r := run("what was my first question?")
	r.History = history
	result := b.do(t, quick(), m, r)
	require.Equal(t, agent.Done, result.Outcome)
	require.Equal(t, 20, result.HistoryUsed)
	for i, want := range []int{80, 40, 20} {
		req := m.requests[i]
		require.Len(t, req.Messages, want+1)
		require.Equal(t, "be brief", req.System)
		require.Equal(t, user("what was my first question?"), req.Messages[want])
	}

	m = &scripted{turns: []turn{overflow}}
	_, err := loop(t, newBench(), quick(), m).Run(t.Context(), r, newBench(), nil)
	require.ErrorContains(t, err, "context_overflow")
	require.Len(t, m.requests, 6, "a bounded number of times")

	r.History = nil
	m = &scripted{turns: []turn{overflow}}
	_, err = loop(t, newBench(), quick(), m).Run(t.Context(), r, newBench(), nil)
	require.ErrorContains(t, err, "context_overflow")
	require.Len(t, m.requests, 1, "nothing can be left out")
}

func TestRun_BlankPromptIsSaidToBeEmpty(t *testing.T) {
	t.Parallel()
	m := &scripted{turns: []turn{{text: "hm?"}}}
	newBench().do(t, quick(), m, run(" "))
	require.Equal(t, []llm.Message{user("(empty message)")}, m.requests[0].Messages)
}
