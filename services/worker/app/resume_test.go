package app_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// secondAttempt is a store whose claims find what an earlier attempt at the run has stored before its worker died.
type secondAttempt struct {
	store.Store
	messages []llm.Message
	ledger   []store.ToolCall
}

func (s *secondAttempt) Claim(ctx context.Context, reqs []store.ClaimRequest) ([]store.Claimed, error) {
	claimed, err := s.Store.Claim(ctx, reqs)
	if err != nil || len(claimed) == 0 {
		return claimed, err
	}
	c := &claimed[0]
	cp := store.Checkpoint{Fence: c.Fence, RunGen: c.FirstGen, ToolCalls: s.ledger}
	for i, m := range s.messages {
		content, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		row := store.Message{N: i + 1, RunID: c.RunID, Role: string(m.Role), Content: content}
		if m.Role == llm.User {
			row.InboxSeq = int64(i + 1)
		}
		cp.Messages = append(cp.Messages, row)
	}
	if _, err := s.Checkpoint(ctx, []store.Checkpoint{cp}); err != nil {
		return nil, err
	}
	c.Attempts, c.Attempt, c.ToolCalls = 2, 1, s.ledger
	return claimed, nil
}

// openCall is an attempt that died within a call of a tool.
func openCall(inner store.Store, name string, effect tool.Effect) *secondAttempt {
	return &secondAttempt{
		Store: inner,
		messages: []llm.Message{
			{Role: llm.User, Text: "do it"},
			{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "call-7", Name: name, Arguments: "{}"}}},
		},
		ledger: []store.ToolCall{{CallID: "call-7", Name: name, Effect: string(effect), State: store.ToolIntent}},
	}
}

func lastOf(_ context.Context, _ int, req llm.Request, _ func(string)) (llm.Response, error) {
	return text("I see: " + req.Messages[len(req.Messages)-1].Text), nil
}

func TestResume_AnUnsafeCallIsNotRepeatedAndItsOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: lastOf})
	b.backends.Store = openCall(b.mem, "send", tool.Unsafe)
	b.start(t)
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "do it"), c.row("m2", "later"))[0]
	b.ring(t, c, a, 0)
	run := b.ended(t, a.RunID)
	require.Equal(t, store.RunDone, run.State)
	require.Equal(t, []int64{1, 1}, []int64{run.FromSeq, run.ToSeq}, "the run keeps the row that its messages name")
	require.Empty(t, b.tools.calls())
	said := b.said(t, a.RunID)
	require.Equal(t, []string{"user: do it", "assistant: [send]"}, said[:2])
	require.True(t, strings.HasPrefix(said[2], "tool: outcome unknown"), said[2])
	require.True(t, strings.HasPrefix(b.replies(t, a.RunID)[0], "I see: outcome unknown"))
}

func TestResume_AReadIsExecutedAgainUnderItsKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: lastOf})
	b.backends.Store = openCall(b.mem, "look", tool.Read)
	b.start(t)
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "do it")
	require.Equal(t, store.RunDone, b.ended(t, a.RunID).State)
	require.Len(t, b.tools.calls(), 1)
	require.Equal(t, a.RunID.String()+":call-7", b.tools.calls()[0].IdemKey)
	require.Equal(t, []string{"user: do it", "assistant: [look]", "tool: done", "assistant: I see: done"}, b.said(t, a.RunID))
}

func TestResume_StoppedRunKeepsItsMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t, &script{answer: lastOf})
	b.backends.Store = openCall(b.mem, "look", tool.Read)
	b.start(t)
	c := newChat(webhook, "a")
	a := b.admit(t, c.row("m1", "do it"), c.row("s1", "/stop", stopRow))[0]
	b.ring(t, c, a, 0)
	require.Equal(t, store.RunCancelled, b.ended(t, a.RunID).State)
	require.Equal(t, []string{"user: do it", "assistant: [look]"}, b.said(t, a.RunID), "nothing is stored twice")
	require.Empty(t, b.tools.calls())
	require.Empty(t, b.model.calls())
}
