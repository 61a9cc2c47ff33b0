package demo

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/llm"
)

// wish is what a message asks for: a tool by one of its usual names, and arguments by theirs.
type wish struct {
	tools     []string
	arguments []argument
}

type argument struct {
	names []string
	value string
}

// rule understands one kind of request. The groups of the pattern are the values of the arguments.
type rule struct {
	pattern   *regexp.Regexp
	tools     []string
	arguments [][]string
}

// newRules returns the rules in the order in which they are tried: the more a request says, the earlier its rule.
func newRules() []rule {
	path := []string{"path", "file", "filename"}
	content := []string{"content", "text"}
	query := []string{"pattern", "query", "text", "q"}
	command := []string{"command", "cmd"}
	terminal := []string{"terminal", "run_command"}
	return []rule{
		{regexp.MustCompile(`(?is)^\s*(?:please\s+)?run\s*:\s*(.+?)\s*$`), terminal, [][]string{command}},
		{regexp.MustCompile("(?is)\\b(?:run|execute)\\s+(?:the\\s+command\\s+)?`(.+?)`"), terminal, [][]string{command}},
		{
			regexp.MustCompile(`(?is)\b(?:write|save|put)\s+["“](.*)["”]\s+(?:to|into|in)\s+(?:the\s+)?(?:file\s+)?(\S+?)[.!]?\s*$`),
			[]string{"write_file"},
			[][]string{content, path},
		},
		{
			regexp.MustCompile(`(?i)\b(?:fetch|get|open|download)\b.*?(https?://[^\s"”>)]+)`),
			[]string{"http_request", "http_get", "fetch_url", "fetch"},
			[][]string{{"url"}},
		},
		{
			regexp.MustCompile(`(?i)\b(?:search|look|grep)\s+(?:the\s+(?:files|workspace)\s+)?for\s+["“]?(.+?)["”]?[.?!]?\s*$`),
			[]string{"search_files", "search", "grep"},
			[][]string{query},
		},
		{
			regexp.MustCompile(`(?i)\b(?:read|show|cat|open)\s+(?:me\s+)?(?:the\s+)?(?:file\s+)?["“]?([\w./-]*\w\.\w+|[\w.-]*/[\w./-]+)["”]?`),
			[]string{"read_file"},
			[][]string{path},
		},
		{regexp.MustCompile(`(?i)\b(?:what|which|list|show)\b.*\b(?:files?|workspace|folder|directory)\b`), []string{"list_files"}, nil},
		{
			regexp.MustCompile(`(?i)\b(?:what\s+time|what's\s+the\s+time|current\s+time|time\s+is\s+it|what\s+date|today's\s+date)\b`),
			[]string{"current_time", "now", "get_time"},
			nil,
		},
	}
}

func (m *Model) understand(text string) (wish, bool) {
	for _, r := range m.rules {
		groups := r.pattern.FindStringSubmatch(text)
		if groups == nil {
			continue
		}
		w := wish{tools: r.tools}
		for i, names := range r.arguments {
			w.arguments = append(w.arguments, argument{names: names, value: groups[i+1]})
		}
		return w, true
	}
	return wish{}, false
}

// find returns the first usual tool that is offered.
func (w wish) find(offered []llm.ToolSpec) (llm.ToolSpec, bool) {
	for _, name := range w.tools {
		if i := slices.IndexFunc(offered, func(t llm.ToolSpec) bool { return t.Name == name }); i >= 0 {
			return offered[i], true
		}
	}
	return llm.ToolSpec{}, false
}

// fill writes the arguments under the names that the tool's schema has.
func (w wish) fill(spec llm.ToolSpec) string {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	// A schema that cannot be read has no properties: the usual names are as good as any.
	_ = json.Unmarshal(spec.Parameters, &schema)
	values := map[string]string{}
	for _, a := range w.arguments {
		name := a.names[0]
		for _, candidate := range a.names {
			if _, ok := schema.Properties[candidate]; ok {
				name = candidate
				break
			}
		}
		values[name] = strings.TrimSpace(a.value)
	}
	raw, err := json.Marshal(values)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return string(raw)
}
