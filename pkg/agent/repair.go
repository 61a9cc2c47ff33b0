package agent

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// window returns the newest messages, at most limit, beginning with a user message: never inside a tool exchange.
func window(history []llm.Message, limit int) []llm.Message {
	history = history[max(len(history)-max(limit, 0), 0):]
	first := slices.IndexFunc(history, func(m llm.Message) bool { return m.Role == llm.User })
	if first < 0 {
		return nil
	}
	return history[first:]
}

// openCalls returns the calls at the end of a conversation that have no result.
func openCalls(messages []llm.Message) []llm.ToolCall {
	last := len(messages) - 1
	answered := map[string]bool{}
	for last >= 0 && messages[last].Role == llm.Tool {
		answered[messages[last].ToolCallID] = true
		last--
	}
	if last < 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(messages[last].ToolCalls), func(c llm.ToolCall) bool { return answered[c.ID] })
}

// repair returns a conversation that every provider takes: readable text, no message without content, each call with
// one result right behind it and each result with its call, ids unique. The input is not changed.
func repair(messages []llm.Message) []llm.Message {
	ids := callIDs{}
	repaired := make([]llm.Message, 0, len(messages))
	for i, m := range messages {
		m.Text = readable(m.Text)
		switch {
		case m.Role == llm.Tool: // taken along with its call
		case len(m.ToolCalls) > 0:
			repaired = append(repaired, exchange(m, messages[i+1:], ids)...)
		case strings.TrimSpace(m.Text) != "":
			repaired = append(repaired, m)
		}
	}
	return repaired
}

// exchange returns an assistant message and the results of its calls, in the order of the calls, taken from the tool
// messages right behind it.
func exchange(m llm.Message, rest []llm.Message, ids callIDs) []llm.Message {
	results := map[string][]llm.Message{}
	for _, r := range rest {
		if r.Role != llm.Tool {
			break
		}
		results[r.ToolCallID] = append(results[r.ToolCallID], r)
	}
	m.ToolCalls = slices.Clone(m.ToolCalls)
	out := []llm.Message{m}
	for i, call := range m.ToolCalls {
		result := toolMessage(call.ID, tool.Result{Outcome: tool.Error, Content: interruptedText})
		if found := results[call.ID]; len(found) > 0 {
			result, results[call.ID] = found[0], found[1:]
			result.Text = tool.Readable(result.Text)
		}
		call.ID = ids.unique(call.ID)
		call.Arguments = tool.Object(call.Arguments)
		result.ToolCallID = call.ID
		m.ToolCalls[i] = call
		out = append(out, result)
	}
	return out
}

func readable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

func toolMessage(id string, r tool.Result) llm.Message {
	return llm.Message{Role: llm.Tool, ToolCallID: id, Text: r.Content, ToolError: r.Outcome != tool.OK}
}

// callIDs are the ids that a conversation has used.
type callIDs map[string]bool

// unique returns id, or a variation of it that is not used yet, and takes it.
func (ids callIDs) unique(id string) string {
	if id == "" {
		id = "call"
	}
	fresh := id
	for n := 2; ids[fresh]; n++ {
		fresh = id + "_" + strconv.Itoa(n)
	}
	ids[fresh] = true
	return fresh
}

func (ids callIDs) takeAll(messages []llm.Message) {
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			ids[c.ID] = true
		}
	}
}
