// Package llmtest is the suite that every llm.Model passes.
package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

// Subject is a model under test. The answer to every request has at least two words; a request with tools gets a call
// of the first one if its last message is by the user, else a text.
type Subject struct {
	Model llm.Model
	// Ask is a user message that the model answers in words, Do one for which it calls Tool with valid arguments.
	Ask, Do string
	Tool    llm.ToolSpec
}

var errCancelled = errors.New("llmtest: cancelled")

// Run runs the suite.
func Run(t *testing.T, setup func(t *testing.T) Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"streams the text of the answer in order":     streamsText,
		"works without a listener":                    worksWithoutListener,
		"calls a tool and reads its result":           callsTool,
		"returns the cause of a cancelled context":    returnsCause,
		"gives no text after it was cancelled":        stopsText,
		"answers several calls at once independently": answersConcurrently,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t))
		})
	}
}

func user(text string) []llm.Message { return []llm.Message{{Role: llm.User, Text: text}} }

func streamsText(t *testing.T, s Subject) {
	var streamed strings.Builder
	pieces := 0
	resp, err := s.Model.Generate(t.Context(), llm.Request{Messages: user(s.Ask)}, func(text string) {
		require.NotEmpty(t, text)
		streamed.WriteString(text)
		pieces++
	})
	require.NoError(t, err)
	require.Equal(t, llm.Assistant, resp.Message.Role)
	require.Equal(t, llm.FinishStop, resp.Finish)
	require.Empty(t, resp.Message.ToolCalls)
	require.NotEmpty(t, strings.TrimSpace(resp.Message.Text))
	require.Equal(t, resp.Message.Text, streamed.String())
	require.Greater(t, pieces, 1, "the answer came in one piece")
	require.NotEmpty(t, s.Model.Provider())
}

func worksWithoutListener(t *testing.T, s Subject) {
	resp, err := s.Model.Generate(t.Context(), llm.Request{Messages: user(s.Ask)}, nil)
	require.NoError(t, err)
	require.NotEmpty(t, resp.Message.Text)
}

func callsTool(t *testing.T, s Subject) {
	req := llm.Request{Messages: user(s.Do), Tools: []llm.ToolSpec{s.Tool}}
	resp, err := s.Model.Generate(t.Context(), req, nil)
	require.NoError(t, err)
	require.Equal(t, llm.FinishToolCalls, resp.Finish)
	require.Len(t, resp.Message.ToolCalls, 1)
	call := resp.Message.ToolCalls[0]
	require.NotEmpty(t, call.ID)
	require.Equal(t, s.Tool.Name, call.Name)
	require.True(t, json.Valid([]byte(call.Arguments)), "arguments are JSON")

	result := llm.Message{Role: llm.Tool, ToolCallID: call.ID, Text: "notes.txt"}
	req.Messages = append(req.Messages, resp.Message, result)
	resp, err = s.Model.Generate(t.Context(), req, nil)
	require.NoError(t, err)
	require.Equal(t, llm.FinishStop, resp.Finish)
	require.NotEmpty(t, strings.TrimSpace(resp.Message.Text))
}

func returnsCause(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCancelled)
	_, err := s.Model.Generate(ctx, llm.Request{Messages: user(s.Ask)}, nil)
	require.ErrorIs(t, err, errCancelled)
}

func stopsText(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	pieces := 0
	_, err := s.Model.Generate(ctx, llm.Request{Messages: user(s.Ask)}, func(string) {
		pieces++
		cancel(errCancelled)
	})
	require.ErrorIs(t, err, errCancelled)
	require.Equal(t, 1, pieces)
}

func answersConcurrently(t *testing.T, s Subject) {
	answers := make(chan string)
	const callers = 4
	for range callers {
		go func() {
			resp, err := s.Model.Generate(t.Context(), llm.Request{Messages: user(s.Ask)}, nil)
			if err != nil {
				answers <- err.Error()
				return
			}
			answers <- resp.Message.Text
		}()
	}
	first := <-answers
	for range callers - 1 {
		require.Equal(t, first, <-answers)
	}
}
