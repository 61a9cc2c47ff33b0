package agent_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// crashed is a run whose first attempt died after it stored its prompt, one step and the intents of its calls.
func crashed(calls ...llm.ToolCall) agent.Run {
	r := run("go")
	r.Stored = []agent.Entry{{N: 1, Message: user("go"), InboxSeq: 7}, {N: 2, Message: asked(calls...)}}
	return r
}

func intent(id, name string, effect tool.Effect) agent.Call {
	return agent.Call{ID: id, Name: name, Effect: effect, State: agent.CallIntent}
}

func TestResume_RepeatsReadsAndIdempotentCallsUnderTheirKeyAndNeverUnsafeOnes(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := crashed(call("a", "read", `{"path":"x"}`), call("b", "put", "{}"), call("c", "send", "{}"))
	r.Calls = []agent.Call{intent("a", "read", tool.Read), intent("b", "put", tool.Idempotent), intent("c", "send", tool.Unsafe)}
	b.entries = r.Stored
	m := &scripted{turns: []turn{{text: "checked, done"}}}
	result := b.do(t, quick(), m, r)

	require.Equal(t, "checked, done", result.Text)
	require.Equal(t, []string{"start a", "end a", "start b", "end b"}, b.log)
	require.Equal(t, "run:a", b.executed[0].IdemKey)
	require.JSONEq(t, `{"path":"x"}`, string(b.executed[0].Arguments))
	require.Equal(t, "run:b", b.executed[1].IdemKey)
	require.Equal(t, []llm.Message{
		user("go"), r.Stored[1].Message, got("a", "read ok"), got("b", "put ok"),
		failed("c", "outcome unknown: the action may have happened; verify before repeating"),
	}, m.requests[0].Messages, "the prompt is not added twice")
	require.Equal(t, agent.CallUnknown, b.calls["c"].State)
	require.Equal(t, agent.CallDone, b.calls["b"].State)
	require.Equal(t, []int{3, 4, 5, 6}, []int{result.Entries[0].N, result.Entries[1].N, result.Entries[2].N, result.Entries[3].N})
}

func TestResume_TakesResultsFromTheLedger(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := crashed(call("a", "send", "{}"), call("b", "send", "{}"), call("c", "send", "{}"), call("d", "now", "{}"), call("e", "now", "{}"))
	r.Calls = []agent.Call{
		{ID: "a", Name: "send", Effect: tool.Unsafe, State: agent.CallDone, Result: &tool.Result{Outcome: tool.OK, Content: "sent"}},
		{ID: "b", Name: "send", Effect: tool.Unsafe, State: agent.CallFailed, Result: &tool.Result{Outcome: tool.Denied, Content: "not allowed"}},
		{ID: "c", Name: "send", Effect: tool.Unsafe, State: agent.CallUnknown},
		{ID: "d", Name: "now", Effect: tool.Read, State: agent.CallDone},
	}
	b.entries = r.Stored
	m := &scripted{turns: []turn{{text: "done then"}}}
	b.do(t, quick(), m, r)
	require.Empty(t, b.executed)
	require.Equal(t, []llm.Message{
		got("a", "sent"), failed("b", "not allowed"),
		failed("c", "outcome unknown: the action may have happened; verify before repeating"),
		got("d", "(no output)"), failed("e", "interrupted: the call was not started"),
	}, m.requests[0].Messages[2:])
}

func TestResume_LeavesStoredResultsAsTheyAre(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := crashed(call("a", "now", "{}"), call("b", "nope", "{}"))
	r.Stored = append(r.Stored, agent.Entry{N: 4, Message: failed("b", "not executed: there is no tool")})
	r.Calls = []agent.Call{intent("a", "now", tool.Read)}
	b.entries = r.Stored
	m := &scripted{turns: []turn{{text: "done then"}}}
	result := b.do(t, quick(), m, r)
	require.Len(t, b.executed, 1)
	require.Equal(t, []llm.Message{got("a", "now ok"), failed("b", "not executed: there is no tool")}, m.requests[0].Messages[2:])
	require.Equal(t, 3, result.Entries[0].N, "the gap is filled")
	require.Equal(t, 5, result.Entries[1].N)
}

func TestResume_AfterACrashAnywhereTheSameConversationComesOut(t *testing.T) {
	t.Parallel()
	script := []turn{
		{text: "first", calls: []llm.ToolCall{call("a", "read", `{"path":"x"}`), call("b", "send", ""), call("c", "nope", "")}},
		{text: "second", calls: []llm.ToolCall{call("d", "put", ""), call("e", "send", "")}},
		{text: "the end"},
	}
	whole := newBench()
	whole.do(t, quick(), &scripted{turns: script}, run("go"))

	// The n-th checkpoint is stored and the process dies right after it.
	for n := 1; n <= whole.checkpoints; n++ {
		b := newBench()
		ctx, crash := context.WithCancelCause(t.Context())
		b.onCheckpoint = func(c int) (agent.Signal, error) {
			if c == n {
				crash(context.Canceled)
			}
			return agent.Signal{}, nil
		}
		_, err := loop(t, b, quick(), &scripted{turns: script}).Run(ctx, run("go"), b, nil)
		require.Error(t, err)
		before := len(b.executed)

		b.onCheckpoint = nil
		r := run("go")
		r.Stored, r.Calls = b.entries, b.ledger()
		steps := 0
		for _, e := range b.entries {
			if e.Message.Role == llm.Assistant {
				steps++
			}
		}
		b.do(t, quick(), &scripted{turns: script[steps:]}, r)

		texts := func(messages []llm.Message) (out []string) {
			for _, m := range messages {
				if m.Role != llm.Tool {
					out = append(out, m.Text)
				}
			}
			return out
		}
		require.Equal(t, texts(whole.stored()), texts(b.stored()), "crash after checkpoint %d", n)
		sends := map[string]int{}
		for _, req := range b.executed {
			if req.Name == "send" {
				sends[req.CallID]++
			}
		}
		for id, times := range sends {
			require.Equal(t, 1, times, "unsafe call %s, crash after checkpoint %d (%d executed before)", id, n, before)
		}
	}
}

func TestResume_CountsStepsOfEarlierAttempts(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := crashed(call("a", "now", "{}"))
	r.Calls = []agent.Call{intent("a", "now", tool.Read)}
	b.entries = r.Stored
	cfg := quick()
	cfg.Steps = 1
	result := b.do(t, cfg, &scripted{turns: []turn{{text: "summing up"}}}, r)
	require.Equal(t, agent.Budget, result.Outcome)
	require.Equal(t, 1, result.Steps)
}

func TestResume_ToolThatIsGoneIsAnErrorNotACrash(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := crashed(call("a", "gone", "{}"), call("b", "read", "{}"))
	r.Calls = []agent.Call{intent("a", "gone", tool.Read), intent("b", "read", tool.Read)}
	b.entries = r.Stored
	m := &scripted{turns: []turn{{text: "then not"}}}
	b.do(t, quick(), m, r)
	require.Empty(t, b.executed)
	require.Contains(t, m.requests[0].Messages[2].Text, `there is no tool "gone"`)
	require.Contains(t, m.requests[0].Messages[3].Text, "path: missing, but required")
	require.Equal(t, agent.CallFailed, b.calls["a"].State)
}

func TestResume_NewPromptRowsComeBehindTheOpenStep(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := crashed(call("a", "now", "{}"))
	r.Calls = []agent.Call{intent("a", "now", tool.Read)}
	r.Prompt = append(r.Prompt, agent.Prompt{Message: user("one more thing"), InboxSeq: 8})
	b.entries = r.Stored
	m := &scripted{turns: []turn{{text: "both done"}}}
	b.do(t, quick(), m, r)
	require.Equal(t, []llm.Message{user("go"), r.Stored[1].Message, got("a", "now ok"), user("one more thing")}, m.requests[0].Messages)
	require.Equal(t, int64(8), b.entries[3].InboxSeq)
}
