// Package demo is an offline model that needs no key: it understands a few plain requests by their words and really
// calls the tools for them, so that a fresh installation shows the whole path. It says in every answer what it is.
//
// A Model is deterministic, keeps no state and is safe for concurrent use.
package demo

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

// Name is the name that the model goes by.
const Name = "hermes-demo"

// Model is the demo model.
type Model struct {
	rules []rule
}

var _ llm.Model = (*Model)(nil)

// New returns the model.
func New() *Model { return &Model{rules: newRules()} }

// Provider implements llm.Model.
func (*Model) Provider() string { return "demo" }

// Generate implements llm.Model: it reads the last user message, or the results of the tools that it called.
func (m *Model) Generate(ctx context.Context, req llm.Request, onText func(string)) (llm.Response, error) {
	message := m.reply(req)
	if err := stream(ctx, message.Text, onText); err != nil {
		return llm.Response{}, err
	}
	resp := llm.Response{ID: Name, Model: Name, Message: message, Finish: llm.FinishStop, Usage: usage(req, message)}
	if len(message.ToolCalls) > 0 {
		resp.Finish = llm.FinishToolCalls
	}
	return resp, nil
}

func stream(ctx context.Context, text string, onText func(string)) error {
	for word := range strings.SplitAfterSeq(text, " ") {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if word != "" && onText != nil {
			onText(word)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// usage counts words, which is as good as tokens here.
func usage(req llm.Request, answer llm.Message) llm.Usage {
	input := len(strings.Fields(req.System))
	for _, m := range req.Messages {
		input += len(strings.Fields(m.Text))
	}
	output := len(strings.Fields(answer.Text))
	for _, c := range answer.ToolCalls {
		output += len(strings.Fields(c.Arguments))
	}
	return llm.Usage{InputTokens: int64(input), OutputTokens: int64(output)}
}

func (m *Model) reply(req llm.Request) llm.Message {
	if results := trailingResults(req.Messages); len(results) > 0 {
		return say(summary(req.Messages, results))
	}
	text := lastUserText(req.Messages)
	wish, understood := m.understand(text)
	if !understood {
		return say(greeting(text))
	}
	spec, offered := wish.find(req.Tools)
	if !offered {
		return say(fmt.Sprintf("I am the built-in demo model. For that I would use the tool %s, which I was not given.", wish.tools[0]))
	}
	return llm.Message{
		Role:      llm.Assistant,
		Text:      fmt.Sprintf("I am the built-in demo model; I will use the tool %s.", spec.Name),
		ToolCalls: []llm.ToolCall{{ID: callID(req.Messages), Name: spec.Name, Arguments: wish.fill(spec)}},
	}
}

func say(text string) llm.Message { return llm.Message{Role: llm.Assistant, Text: text} }

// callID is unique within the conversation.
func callID(messages []llm.Message) string {
	calls := 0
	for _, m := range messages {
		calls += len(m.ToolCalls)
	}
	return fmt.Sprintf("demo_%d", calls+1)
}

func lastUserText(messages []llm.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == llm.User {
			return messages[i].Text
		}
	}
	return ""
}

// trailingResults returns the tool messages at the end.
func trailingResults(messages []llm.Message) []llm.Message {
	start := len(messages)
	for start > 0 && messages[start-1].Role == llm.Tool {
		start--
	}
	return messages[start:]
}

func summary(messages, results []llm.Message) string {
	names := map[string]string{}
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			names[c.ID] = c.Name
		}
	}
	parts := []string{"I am the built-in demo model. This is what came back:"}
	for _, r := range results {
		parts = append(parts, fmt.Sprintf("%s %s:\n```\n%s\n```", names[r.ToolCallID], verb(r), clip(strings.TrimSpace(r.Text))))
	}
	return strings.Join(parts, "\n\n")
}

func verb(r llm.Message) string {
	if r.ToolError {
		return "failed"
	}
	return "says"
}

// maxQuote bounds how much of a result or a message is repeated, in bytes.
const maxQuote = 2000

func clip(text string) string {
	if len(text) <= maxQuote {
		return text
	}
	end := maxQuote
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + " …"
}

func greeting(text string) string {
	help := "I am the built-in demo model, so I only understand a few plain requests: " +
		"\"what files are in the workspace?\", \"read notes.txt\", \"write \"hello\" to notes.txt\", " +
		"\"search for hello\", \"what time is it?\", \"run: ls -la\" and \"fetch https://example.com\". " +
		"Configure a provider to talk to a real model."
	if strings.TrimSpace(text) == "" {
		return "Hello! " + help
	}
	return fmt.Sprintf("You said: %s\n\n%s", clip(text), help)
}
