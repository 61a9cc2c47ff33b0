package openai

import (
	"strings"

	sdk "github.com/openai/openai-go/v3"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

// answer collects the chunks of one stream.
type answer struct {
	onText func(string)
	text   strings.Builder
	calls  []*call
	resp   llm.Response
	finish string
}

// call is a tool call as it grows. Arguments come in pieces.
type call struct {
	index     int64
	id        string
	name      string
	arguments strings.Builder
}

func newAnswer(onText func(string)) *answer {
	if onText == nil {
		onText = func(string) {}
	}
	return &answer{onText: onText}
}

// add takes a chunk. Chunks without choices carry usage, or nothing.
func (a *answer) add(chunk sdk.ChatCompletionChunk) {
	if chunk.ID != "" {
		a.resp.ID = chunk.ID
	}
	if chunk.Model != "" {
		a.resp.Model = chunk.Model
	}
	if chunk.Usage.PromptTokens != 0 || chunk.Usage.CompletionTokens != 0 {
		a.resp.Usage = llm.Usage{InputTokens: chunk.Usage.PromptTokens, OutputTokens: chunk.Usage.CompletionTokens}
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 { // one answer was asked for
			continue
		}
		a.addText(choice.Delta.Content)
		a.addText(choice.Delta.Refusal)
		for _, delta := range choice.Delta.ToolCalls {
			a.addCall(delta)
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

func (a *answer) addText(text string) {
	if text == "" {
		return
	}
	a.text.WriteString(text)
	a.onText(text)
}

func (a *answer) addCall(delta sdk.ChatCompletionChunkChoiceDeltaToolCall) {
	c := a.callAt(delta.Index, delta.ID)
	if delta.ID != "" {
		c.id = delta.ID
	}
	c.name += delta.Function.Name
	c.arguments.WriteString(delta.Function.Arguments)
}

// callAt finds the call that a piece belongs to. Some servers give every call the index 0: there a new id begins a new
// call.
func (a *answer) callAt(index int64, id string) *call {
	for i := len(a.calls) - 1; i >= 0; i-- {
		c := a.calls[i]
		if c.index == index && (id == "" || c.id == "" || c.id == id) {
			return c
		}
	}
	c := &call{index: index}
	a.calls = append(a.calls, c)
	return c
}

func (a *answer) response() (llm.Response, error) {
	if a.finish == "" {
		return llm.Response{}, &llm.Error{Kind: llm.KindNetwork, Message: "the stream ended in the middle of the answer"}
	}
	a.resp.Message = llm.Message{Role: llm.Assistant, Text: a.text.String()}
	for _, c := range a.calls {
		toolCall := llm.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()}
		a.resp.Message.ToolCalls = append(a.resp.Message.ToolCalls, toolCall)
	}
	a.resp.Finish = finishOf(a.finish, len(a.calls) > 0)
	return a.resp, nil
}

func finishOf(reason string, calls bool) llm.FinishReason {
	switch {
	case reason == "length":
		return llm.FinishLength
	case reason == "content_filter":
		return llm.FinishFilter
	case calls: // some servers say "stop" here
		return llm.FinishToolCalls
	default:
		return llm.FinishStop
	}
}
