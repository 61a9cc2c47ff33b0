package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// deaf is a tool that does not heed the end of its context: it returns when it is released.
func deaf(started chan<- string, released <-chan struct{}) func(context.Context, tool.Request, func(string)) (tool.Result, error) {
	return func(_ context.Context, req tool.Request, progress func(string)) (tool.Result, error) {
		started <- req.CallID
		<-released
		progress("too late")
		return tool.Result{Outcome: tool.OK, Content: "too late"}, nil
	}
}

func TestRun_StopDoesNotWaitForToolsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		started, released := make(chan string, 2), make(chan struct{})
		b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
			"read": deaf(started, released),
		}
		var owned sync.WaitGroup
		l, err := agent.New(quick(), agent.Deps{
			Model: &scripted{turns: []turn{{calls: []llm.ToolCall{
				call("a", "read", `{"path":"x"}`), call("b", "now", ""), call("c", "send", ""),
			}}}},
			Tools: registry(t), Executor: b, Go: owned.Go,
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancelCause(t.Context())
		go func() {
			<-started
			synctest.Wait() // b is done
			stop(agent.ErrStopped)
		}()
		begun := time.Now()
		result, err := l.Run(ctx, run("go"), b, b.observe)
		require.ErrorIs(t, err, agent.ErrStopped)
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.Equal(t, agent.Stopped, result.Outcome)
		b.keep(result.Entries, result.Calls)
		requirePaired(t, b.stored())
		require.Equal(t, []llm.Message{
			failed("a", "interrupted: the call did not finish"), got("b", "now ok"),
			failed("c", "interrupted: the call was not started"),
		}, b.stored()[2:], "what has arrived is stored as it is")

		seen := len(b.events)
		close(released)
		owned.Wait()
		require.Len(t, b.events, seen, "what comes later is dropped")
		require.Equal(t, agent.CallFailed, b.calls["a"].State)
	})
}

func TestRun_UnsafeCallThatIsAbandonedMayHaveHappened(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause   error
		outcome agent.Outcome
		state   agent.CallState
	}{
		"stop": {agent.ErrStopped, agent.Stopped, agent.CallUnknown},
		// The next attempt decides: it finds an intent without a result.
		"handover": {agent.ErrHandover, agent.HandedOver, agent.CallIntent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				started, released := make(chan string, 1), make(chan struct{})
				b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
					"send": deaf(started, released),
				}
				ctx, end := context.WithCancelCause(t.Context())
				go func() {
					<-started
					end(c.cause)
				}()
				m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "send", ""), call("b", "send", ""), call("c", "put", "")}}}}
				result, err := loop(t, b, quick(), m).Run(ctx, run("go"), b, nil)
				require.ErrorIs(t, err, c.cause)
				require.Equal(t, c.outcome, result.Outcome)
				b.keep(result.Entries, result.Calls)
				require.Equal(t, c.state, b.calls["a"].State)
				require.Equal(t, agent.CallFailed, b.calls["b"].State, "it was never started")
				close(released)
			})
		})
	}
}

func TestRun_LeavesBetweenTwoStepsWithEverythingStored(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{call("a", "now", ""), call("b", "send", "")}}, {text: "never"}}}
	r := run("go")
	r.Leave = func() bool { return len(b.executed) == 2 }
	result, err := loop(t, b, quick(), m).Run(t.Context(), r, b, nil)
	require.ErrorIs(t, err, agent.ErrHandover)
	require.Equal(t, agent.HandedOver, result.Outcome)
	require.Len(t, m.requests, 1)
	b.keep(result.Entries, result.Calls)
	requirePaired(t, b.stored())
	require.Equal(t, agent.CallDone, b.calls["a"].State)

	// Another place goes on with the results.
	again := run("go")
	again.Stored, again.Calls = b.entries, b.ledger()
	next := &scripted{turns: []turn{{text: "now and sent"}}}
	require.Equal(t, "now and sent", b.do(t, quick(), next, again).Text)
	require.Len(t, b.executed, 2, "no call is repeated")
	require.Equal(t, []llm.Message{got("a", "now ok"), got("b", "send ok")}, next.requests[0].Messages[2:])
}

func TestRun_LeavesBeforeItsFirstStepWithThePrompt(t *testing.T) {
	t.Parallel()
	b := newBench()
	m := &scripted{turns: []turn{{text: "never"}}}
	r := run("go")
	r.Leave = func() bool { return true }
	result, err := loop(t, b, quick(), m).Run(t.Context(), r, b, nil)
	require.ErrorIs(t, err, agent.ErrHandover)
	require.Empty(t, m.requests)
	require.Equal(t, []agent.Entry{{N: 1, Message: user("go"), InboxSeq: 7}}, result.Entries)
}

func TestRun_HandoverWithinAModelCallForgetsWhatItSaid(t *testing.T) {
	t.Parallel()
	b := newBench()
	ctx, leave := context.WithCancelCause(t.Context())
	m := &scripted{turns: []turn{{text: "half a sentence"}}}
	observe := func(_ context.Context, e agent.Event) {
		if e.Kind == agent.TextDelta {
			leave(agent.ErrHandover)
		}
	}
	result, err := loop(t, b, quick(), m).Run(ctx, run("go"), b, observe)
	require.ErrorIs(t, err, agent.ErrHandover)
	require.Empty(t, result.Text)
	require.Equal(t, []agent.Entry{{N: 1, Message: user("go"), InboxSeq: 7}}, result.Entries, "who goes on says it anew")
}

func TestRun_HandoverWithinAStepKeepsResultsAndLeavesTheOtherCallsOpen(t *testing.T) {
	t.Parallel()
	b := newBench()
	ctx, leave := context.WithCancelCause(t.Context())
	b.tools = map[string]func(context.Context, tool.Request, func(string)) (tool.Result, error){
		"put": func(ctx context.Context, _ tool.Request, _ func(string)) (tool.Result, error) {
			leave(agent.ErrHandover)
			return tool.Result{}, context.Cause(ctx)
		},
	}
	m := &scripted{turns: []turn{{calls: []llm.ToolCall{
		call("a", "now", ""), call("b", "put", ""), call("c", "read", `{"path":"x"}`), call("d", "send", ""),
	}}}}
	result, err := loop(t, b, quick(), m).Run(ctx, run("go"), b, nil)
	require.ErrorIs(t, err, agent.ErrHandover)
	b.keep(result.Entries, result.Calls)
	states := map[string]agent.CallState{}
	for id, c := range b.calls {
		states[id] = c.State
	}
	require.Equal(t, map[string]agent.CallState{
		"a": agent.CallDone, "b": agent.CallIntent, "c": agent.CallIntent, "d": agent.CallFailed,
	}, states)

	b.tools = nil
	b.executed = nil
	again := run("go")
	again.Stored, again.Calls = b.entries, b.ledger()
	next := &scripted{turns: []turn{{text: "done"}}}
	b.do(t, quick(), next, again)
	var keys []string
	for _, req := range b.executed {
		keys = append(keys, req.IdemKey)
	}
	require.Equal(t, []string{"run:b", "run:c"}, keys, "under their old keys")
	require.Equal(t, []llm.Message{
		got("a", "now ok"), got("b", "put ok"), got("c", "read ok"), failed("d", "interrupted: the call was not started"),
	}, next.requests[0].Messages[2:])
}

func TestRTR05_NoModelCallBeginsForARunThatWasStopped(t *testing.T) {
	t.Parallel()
	b := newBench()
	ctx, stop := context.WithCancelCause(t.Context())
	stop(agent.ErrStopped)
	m := &scripted{turns: []turn{{text: "never"}}}
	result, err := loop(t, b, quick(), m).Run(ctx, run("go"), b, b.observe)
	require.ErrorIs(t, err, agent.ErrStopped)
	require.Empty(t, m.requests)
	require.Empty(t, b.events)
	require.Equal(t, []agent.Entry{{N: 1, Message: user("go"), InboxSeq: 7}}, result.Entries)
}

func TestRun_CompleteHistoryIsNotCut(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.HistoryLimit = 2
	r := run("go")
	r.History = []llm.Message{said("hello, I am here"), user("one"), said("two"), user("three"), said("four")}
	for complete, want := range map[bool][]llm.Message{true: r.History, false: r.History[3:]} {
		b := newBench()
		m := &scripted{turns: []turn{{text: "ok"}}}
		r.HistoryComplete = complete
		b.do(t, cfg, m, r)
		require.Equal(t, append(append([]llm.Message(nil), want...), user("go")), m.requests[0].Messages)
	}
}
