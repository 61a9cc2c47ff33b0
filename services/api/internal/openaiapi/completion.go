package openaiapi

import (
	"encoding/json"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
)

// completion is a whole answer. Members that OpenAI always sends are always here.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   usage    `json:"usage"`
}

type choice struct {
	Index        int       `json:"index"`
	Message      assistant `json:"message"`
	LogProbs     *struct{} `json:"logprobs"`
	FinishReason string    `json:"finish_reason"`
}

type assistant struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

const finishStop = "stop"

// id names the completion; a repetition of the request has the same.
func (c *call) id() string { return "chatcmpl-" + c.UID }

func (c *call) completion(final runapi.Event) completion {
	return completion{
		ID: c.id(), Object: "chat.completion", Created: c.ReceivedAt.Unix(), Model: c.profile.Name,
		Choices: []choice{{Message: assistant{Role: roleAssistant, Content: final.Text}, FinishReason: finishStop}},
		Usage:   usageOf(final.Usage),
	}
}

// usageOf counts all model calls of a run. What is not known counts nothing.
func usageOf(raw json.RawMessage) usage {
	var u llm.Usage
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &u) // of a newer worker, in another form: the answer is worth more than its price
	}
	return usage{PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens}
}
