package llm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

func TestJoin_JoinsNeighboursAndNamesSpeakers(t *testing.T) {
	t.Parallel()
	call := []llm.ToolCall{{ID: "a", Name: "now", Arguments: "{}"}}
	history := []llm.Message{
		{Role: llm.User, Name: "Anna", Text: "hi"},
		{Role: llm.User, Text: "unnamed"},
		{Role: llm.Assistant, Text: "one"},
		{Role: llm.Assistant, Text: "two", ToolCalls: call},
		{Role: llm.Tool, ToolCallID: "a", Text: "r"},
		{Role: llm.Tool, ToolCallID: "b", Text: "s"},
		{Role: llm.Assistant, Text: "end"},
	}
	before := append([]llm.Message(nil), history...)

	require.Equal(t, []llm.Message{
		{Role: llm.User, Text: "[Anna]: hi\nunnamed"},
		{Role: llm.Assistant, Text: "one\ntwo", ToolCalls: call},
		{Role: llm.Tool, ToolCallID: "a", Text: "r"},
		{Role: llm.Tool, ToolCallID: "b", Text: "s"},
		{Role: llm.Assistant, Text: "end"},
	}, llm.Join(history))
	require.Equal(t, before, history, "the history keeps the separate messages")
}

func TestJoin_NeverSeparatesCallsFromResults(t *testing.T) {
	t.Parallel()
	call := llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "a"}}}
	require.Len(t, llm.Join([]llm.Message{call, {Role: llm.Assistant, Text: "x"}}), 2)
}
