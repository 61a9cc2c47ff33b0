package turn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/turn"
)

func TestMessage_PromptIsWhatTheModelReads(t *testing.T) {
	t.Parallel()
	m := turn.Message{
		InboxSeq: 7, Name: "Ann", Text: "and\x00 that", Added: true,
		Attachments: []event.Attachment{{Kind: "image", Name: "a.png"}}, Quote: &event.Quote{Text: "what?"},
	}
	prompt, ok := m.Prompt()
	require.True(t, ok)
	require.Equal(t, agent.Prompt{InboxSeq: 7, Message: llm.Message{
		Role: llm.User, Name: "Ann",
		Text: "[the user added this while you were working]\n[in reply to: what?]\nand that\n[image: a.png]",
	}}, prompt)

	_, ok = turn.Message{Text: " \u200b", Added: true}.Prompt()
	require.False(t, ok, "the note alone says nothing")
}
