package openaiapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// parameter is one that would change the meaning of the answer and cannot be honoured.
type parameter struct {
	name    string
	problem string
	// harmless are the values that ask for nothing, besides null, "", [] and {}.
	harmless []string
}

const ownTools = "the agent calls the tools of its profile, a client cannot bring its own"

func unsupported() []parameter {
	return []parameter{
		{name: "tools", problem: ownTools},
		{name: "functions", problem: ownTools},
		{name: "tool_choice", problem: ownTools, harmless: []string{`"none"`, `"auto"`}},
		{name: "function_call", problem: ownTools, harmless: []string{`"none"`, `"auto"`}},
		{name: "n", problem: "one answer is given", harmless: []string{`1`}},
		{name: "response_format", problem: "answers are text", harmless: []string{`{"type":"text"}`}},
		{name: "modalities", problem: "answers are text", harmless: []string{`["text"]`}},
		{name: "audio", problem: "answers are text"},
		{name: "logprobs", problem: "is not known of an agent's answer", harmless: []string{`false`}},
		{name: "top_logprobs", problem: "is not known of an agent's answer", harmless: []string{`0`}},
		{name: "stop", problem: "an agent's answer is not cut"},
		{name: "web_search_options", problem: ownTools},
	}
}

// checkParameters refuses what would be lost without a word. Everything else that is not known has no meaning for an
// agent: sampling, limits of tokens, storage.
func checkParameters(members map[string]json.RawMessage) error {
	for _, p := range unsupported() {
		if raw, there := members[p.name]; there && !p.asksForNothing(raw) {
			return &httpapi.Error{
				Status: http.StatusBadRequest, Type: httpapi.TypeInvalid, Param: p.name, Code: "unsupported_parameter",
				Message: p.name + ": is not supported: " + p.problem,
			}
		}
	}
	return nil
}

func (p parameter) asksForNothing(raw json.RawMessage) bool {
	return isNothing(raw) || slices.Contains(p.harmless, compacted(raw))
}

func isNothing(raw json.RawMessage) bool {
	return slices.Contains([]string{`null`, `""`, `[]`, `{}`}, compacted(raw))
}

// compacted is raw in one form, whatever the space in it.
func compacted(raw json.RawMessage) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil { // it was cut out of valid JSON
		return ""
	}
	out, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(out)
}
