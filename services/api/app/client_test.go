package app_test

import (
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func (d *api) official(key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(d.url+"/v1"), option.WithAPIKey(key), option.WithHTTPClient(d.client))
}

// answering takes the n-th message, which is asked for meanwhile, says the pieces and commits the text.
func (d *api) answering(n int, text string, pieces ...string) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		r := d.taken(n)
		r.start()
		for _, piece := range pieces {
			r.text(piece)
		}
		r.finish(store.RunDone, text)
		r.end()
	}()
	return done
}

func TestOfficialGoClient(t *testing.T) {
	t.Parallel()
	d := withKeys(t)
	client := d.official("ann-key")
	models, err := client.Models.List(t.Context())
	require.NoError(t, err)
	require.Len(t, models.Data, 1)
	model, err := client.Models.Get(t.Context(), models.Data[0].ID)
	require.NoError(t, err)
	require.Equal(t, "default", model.ID)

	ask := openai.ChatCompletionNewParams{
		Model: model.ID, Temperature: openai.Float(0.5), StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("Be brief."), openai.UserMessage("My name is Ada."), openai.AssistantMessage("Hello Ada."), openai.UserMessage("Who am I?"),
		},
	}
	answered := d.answering(1, "You are Ada.")
	plain, err := client.Chat.Completions.New(t.Context(), ask)
	require.NoError(t, err)
	<-answered
	require.Equal(t, "You are Ada.", plain.Choices[0].Message.Content)
	require.Equal(t, "stop", plain.Choices[0].FinishReason)
	require.EqualValues(t, 7, plain.Usage.TotalTokens)

	answered = d.answering(2, "You are Ada.", "You ", "are ")
	stream := client.Chat.Completions.NewStreaming(t.Context(), ask)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, all.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	<-answered
	require.Equal(t, "You are Ada.", all.Choices[0].Message.Content)
	require.Equal(t, "assistant", string(all.Choices[0].Message.Role))
	require.Equal(t, "stop", all.Choices[0].FinishReason)
	require.EqualValues(t, 7, all.Usage.TotalTokens)

	for name, c := range map[string]struct {
		key, code, param string
		status           int
		change           func(p *openai.ChatCompletionNewParams)
	}{
		"bad key":       {"wrong", "invalid_api_key", "Authorization", 401, func(*openai.ChatCompletionNewParams) {}},
		"unknown model": {"ann-key", "model_not_found", "model", 404, func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-4" }},
		"two answers":   {"ann-key", "unsupported_parameter", "n", 400, func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) }},
	} {
		params := ask
		c.change(&params)
		stranger := d.official(c.key)
		_, err := stranger.Chat.Completions.New(t.Context(), params)
		var problem *openai.Error
		require.ErrorAs(t, err, &problem, name)
		require.Equal(t, c.status, problem.StatusCode, name)
		require.Equal(t, c.code, problem.Code, name)
		require.Equal(t, c.param, problem.Param, name)
		require.NotEmpty(t, problem.Message, name)
		require.NotEmpty(t, problem.Type, name)
	}
	require.Equal(t, 2, d.Stored(t))
}

func TestOfficialGoClient_DoesNotRepeatWhatFailed(t *testing.T) {
	t.Parallel()
	d := setup(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.taken(1).finish(store.RunFailed, "Sorry.")
	}()
	client := d.official("any")
	_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "default", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("x")},
	})
	<-done
	var problem *openai.Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "run_failed", problem.Code)
	require.Equal(t, "Sorry.", problem.Message)
	require.Equal(t, 1, d.Stored(t), "clients repeat a 500 by themselves unless they are told not to")
}
