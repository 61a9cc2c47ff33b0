package fakemodel_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
)

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

func TestServer_AnswersInOnePieceWhereNoStreamIsWanted(t *testing.T) {
	t.Parallel()
	s := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{
		Text: "hello", Calls: []fakemodel.Call{{ID: "a", Name: "now", Arguments: "{}"}}, InputTokens: 2, OutputTokens: 1,
	}))
	status, body := post(t, s.URL+"/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"id":"chatcmpl-fake","object":"chat.completion","model":"m",
		"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3},
		"choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"hello",
			"tool_calls":[{"id":"a","type":"function","function":{"name":"now","arguments":"{}"}}]}}]}`, body)
	require.Equal(t, "hi", s.Requests()[0].Last("user"))
	require.Empty(t, s.Requests()[0].Last("tool"))
}

func TestServer_StreamsWordsThenUsageThenTheEnd(t *testing.T) {
	t.Parallel()
	s := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{Text: "a b", InputTokens: 1}))
	_, body := post(t, s.URL+"/chat/completions", `{"stream":true,"stream_options":{"include_usage":true}}`)
	var datas []string
	for line := range strings.SplitSeq(body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			datas = append(datas, data)
		}
	}
	require.Len(t, datas, 6, "role, two words, finish, usage, end")
	require.Contains(t, datas[1], `"content":"a "`)
	require.Contains(t, datas[3], `"finish_reason":"stop"`)
	require.Contains(t, datas[4], `"prompt_tokens":1`)
	require.Equal(t, "[DONE]", datas[5])
}

func TestServer_RefusesWhatIsNoRequest(t *testing.T) {
	t.Parallel()
	s := fakemodel.Start(t, fakemodel.Sequence(fakemodel.Reply{}))
	status, _ := post(t, s.URL+"/models", "")
	require.Equal(t, http.StatusNotFound, status)
	for _, body := range []string{"{", `{"model":5}`} {
		status, _ = post(t, s.URL+"/chat/completions", body)
		require.Equal(t, http.StatusBadRequest, status)
	}
	require.Empty(t, s.Requests())
}
