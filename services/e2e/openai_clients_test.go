package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
)

// counting answers with the question and the number of messages that the model was shown before it.
func counting(_ int, req fakemodel.Request) fakemodel.Reply {
	var earlier []string
	for _, m := range req.Messages {
		if m.Role != "system" {
			earlier = append(earlier, m.Content)
		}
	}
	return fakemodel.Reply{
		Text: "seen: " + strings.Join(earlier, " | "), InputTokens: 7, OutputTokens: 5,
	}
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

type clientError struct {
	Name   string
	Status int
	Code   string
	Type   string
	Param  string
}

func TestOpenAI_OfficialNodeClient(t *testing.T) {
	t.Parallel()
	n := installNode(t, "openai@6.49.0")
	s := start(t, options{model: fakemodel.Start(t, counting).URL})
	cmd := n.command(n.script("openai_client.mjs"))
	cmd.Env = append(cmd.Env, "BASE_URL=http://"+s.api+"/v1", "API_KEY="+apiKey, "MODEL=default")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	var seen struct {
		Models               []string
		Plain, Finish        string
		Usage, StreamUsage   usage
		Pieces               []string
		StreamFinish, Second string
		BadKey               clientError
		BadModel, Tools      clientError
	}
	require.NoError(t, json.Unmarshal(out, &seen), string(out))
	require.Equal(t, []string{"default"}, seen.Models)
	require.Equal(t, "seen: My name is Ada. | Hello Ada. | plain question", seen.Plain)
	require.Equal(t, "stop", seen.Finish)
	require.Equal(t, usage{7, 5, 12}, seen.Usage)
	require.Equal(t, "seen: streamed question", strings.Join(seen.Pieces, ""))
	require.Equal(t, "stop", seen.StreamFinish)
	require.Equal(t, usage{7, 5, 12}, seen.StreamUsage)
	require.Contains(t, seen.Second, "first of the session", "the server keeps the history of a session")
	require.True(t, strings.HasSuffix(seen.Second, "second of the session"), seen.Second)
	require.Equal(t, clientError{Name: "AuthenticationError", Status: 401, Code: "invalid_api_key", Type: seen.BadKey.Type, Param: seen.BadKey.Param}, seen.BadKey)
	require.Equal(t, clientError{Name: "NotFoundError", Status: 404, Code: "model_not_found", Type: "invalid_request_error", Param: "model"}, seen.BadModel)
	require.Equal(t, clientError{Name: "BadRequestError", Status: 400, Code: seen.Tools.Code, Type: "invalid_request_error", Param: "tools"}, seen.Tools)
}

func TestOpenAI_OfficialGoClient(t *testing.T) {
	t.Parallel()
	s := start(t, options{model: fakemodel.Start(t, counting).URL})
	base := option.WithBaseURL("http://" + s.api + "/v1")
	client := openai.NewClient(base, option.WithAPIKey(apiKey), option.WithMaxRetries(0))
	models, err := client.Models.List(t.Context())
	require.NoError(t, err)
	require.Len(t, models.Data, 1)
	require.Equal(t, "default", models.Data[0].ID)

	ask := openai.ChatCompletionNewParams{Model: "default", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("from Go")}}
	plain, err := client.Chat.Completions.New(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, "seen: from Go", plain.Choices[0].Message.Content)
	require.EqualValues(t, 12, plain.Usage.TotalTokens)

	stream := client.Chat.Completions.NewStreaming(t.Context(), ask)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, acc.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "seen: from Go", acc.Choices[0].Message.Content)
	require.Equal(t, "stop", acc.Choices[0].FinishReason)

	stranger := openai.NewClient(base, option.WithAPIKey("sk-wrong"), option.WithMaxRetries(0))
	_, err = stranger.Models.List(t.Context())
	var apiErr *openai.Error
	require.ErrorAs(t, err, &apiErr)
	require.Equal(t, 401, apiErr.StatusCode)
	require.Equal(t, "invalid_api_key", apiErr.Code)
	require.NotEmpty(t, apiErr.Message)
}
