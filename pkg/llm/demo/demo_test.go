package demo_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/llm/demo"
	"github.com/hermes-runtime/hermes/pkg/llm/llmtest"
)

func spec(name string, properties ...string) llm.ToolSpec {
	fields := map[string]any{}
	for _, p := range properties {
		fields[p] = map[string]string{"type": "string"}
	}
	raw, _ := json.Marshal(map[string]any{"type": "object", "properties": fields}) // cannot fail
	return llm.ToolSpec{Name: name, Parameters: raw}
}

var tools = []llm.ToolSpec{
	spec("list_files", "path"), spec("read_file", "path"), spec("write_file", "path", "content"),
	spec("search_files", "pattern"), spec("current_time"), spec("terminal", "command"), spec("http_request", "url", "method"),
}

func generate(t *testing.T, messages []llm.Message, offered []llm.ToolSpec) llm.Response {
	t.Helper()
	resp, err := demo.New().Generate(t.Context(), llm.Request{Messages: messages, Tools: offered}, nil)
	require.NoError(t, err)
	require.Contains(t, resp.Message.Text, "built-in demo model")
	return resp
}

func user(text string) llm.Message { return llm.Message{Role: llm.User, Text: text} }

func TestModel_Conformance(t *testing.T) {
	t.Parallel()
	llmtest.Run(t, func(*testing.T) llmtest.Subject {
		return llmtest.Subject{
			Model: demo.New(), Ask: "hello", Do: "what files are in the workspace?", Tool: tools[0],
		}
	})
}

func TestModel_CallsTheToolThatIsAskedFor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ tool, arguments string }{
		"what files are in the workspace?":         {"list_files", `{}`},
		"List all files, please":                   {"list_files", `{}`},
		"read notes/a.txt":                         {"read_file", `{"path":"notes/a.txt"}`},
		"Please show me the file README.md.":       {"read_file", `{"path":"README.md"}`},
		`write "hello world" to hello.txt`:         {"write_file", `{"content":"hello world","path":"hello.txt"}`},
		`Save "x" into the file notes/b.txt.`:      {"write_file", `{"content":"x","path":"notes/b.txt"}`},
		"search for TODO":                          {"search_files", `{"pattern":"TODO"}`},
		"What time is it?":                         {"current_time", `{}`},
		"run: ls -la":                              {"terminal", `{"command":"ls -la"}`},
		"please run `uname -a` for me":             {"terminal", `{"command":"uname -a"}`},
		"fetch https://example.com/x?y=1 for me":   {"http_request", `{"url":"https://example.com/x?y=1"}`},
		"run: echo 'what files are in the folder'": {"terminal", `{"command":"echo 'what files are in the folder'"}`},
	} {
		resp := generate(t, []llm.Message{user(text)}, tools)
		require.Equal(t, llm.FinishToolCalls, resp.Finish, "%q", text)
		require.Len(t, resp.Message.ToolCalls, 1)
		require.Equal(t, want.tool, resp.Message.ToolCalls[0].Name, "%q", text)
		require.JSONEq(t, want.arguments, resp.Message.ToolCalls[0].Arguments, "%q", text)
	}
}

func TestModel_SummarisesResultsInPlainWords(t *testing.T) {
	t.Parallel()
	messages := []llm.Message{user("what files are in the workspace?")}
	call := generate(t, messages, tools).Message
	messages = append(messages, call, llm.Message{Role: llm.Tool, ToolCallID: call.ToolCalls[0].ID, Text: "a.txt\nb.txt"})

	resp := generate(t, messages, tools)
	require.Equal(t, llm.FinishStop, resp.Finish)
	require.Contains(t, resp.Message.Text, "list_files says:\n```\na.txt\nb.txt\n```")

	messages[2].ToolError, messages[2].Text = true, "no such folder"
	require.Contains(t, generate(t, messages, tools).Message.Text, "list_files failed:\n```\nno such folder\n```")

	messages = append(messages, resp.Message, user("read a.txt"))
	next := generate(t, messages, tools).Message
	require.Equal(t, "read_file", next.ToolCalls[0].Name)
	require.NotEqual(t, call.ToolCalls[0].ID, next.ToolCalls[0].ID)
}

func TestModel_EchoesWhatItDoesNotUnderstandAndSaysWhatItCanDo(t *testing.T) {
	t.Parallel()
	resp := generate(t, []llm.Message{user("tell me a joke")}, tools)
	require.Contains(t, resp.Message.Text, "You said: tell me a joke")
	require.Contains(t, resp.Message.Text, "run: ls -la")
	require.Empty(t, resp.Message.ToolCalls)
	require.Equal(t, resp, generate(t, []llm.Message{user("tell me a joke")}, tools), "deterministic")
}

func TestModel_SaysWhichToolIsMissing(t *testing.T) {
	t.Parallel()
	resp := generate(t, []llm.Message{user("run: ls")}, nil)
	require.Contains(t, resp.Message.Text, "terminal")
	require.Empty(t, resp.Message.ToolCalls)
}

func TestModel_ClipsLongResultsAtWholeCharacters(t *testing.T) {
	t.Parallel()
	call := llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "a", Name: "read_file"}}}
	result := llm.Message{Role: llm.Tool, ToolCallID: "a", Text: strings.Repeat("水", 5000)}
	text := generate(t, []llm.Message{user("read a.txt"), call, result}, tools).Message.Text
	require.Less(t, len(text), 2300)
	require.NotContains(t, text, "\uFFFD")
}
