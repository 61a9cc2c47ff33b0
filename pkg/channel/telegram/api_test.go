package telegram_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
)

func newAPI(t *testing.T, server *fake.Server) *telegram.API {
	t.Helper()
	hc := telegram.NewClient()
	t.Cleanup(hc.CloseIdleConnections)
	api, err := telegram.NewAPI(server.Token(), server.URL()+"/", hc)
	require.NoError(t, err)
	return api
}

func TestNewAPI_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ token, url string }{
		{"", "https://api.telegram.org"},
		{"secret", "https://api.telegram.org"},
		{"1:../x", "https://api.telegram.org"},
		{"1:secret", "ftp://x"},
		{"1:secret", "api.telegram.org"},
		{"1:secret", "https://"},
	} {
		_, err := telegram.NewAPI(c.token, c.url, telegram.NewClient())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := telegram.NewAPI("1:x", "https://api.telegram.org", nil)
	require.Error(t, err)
}

func TestAPI_KnowsItsBot(t *testing.T) {
	t.Parallel()
	server := fake.New(t)
	api := newAPI(t, server)
	bot, err := api.GetMe(t.Context())
	require.NoError(t, err)
	require.Equal(t, telegram.Bot{ID: "999000111", Username: "agent_bot"}, bot)
	require.Equal(t, bot.ID, api.ID())
}

func TestAPI_GetUpdatesConfirmsOnlyWhatLiesBelowTheOffset(t *testing.T) {
	t.Parallel()
	server := fake.New(t)
	api := newAPI(t, server)
	server.Say(5, 5, "one")
	server.Say(5, 5, "two")
	for range 2 {
		updates, err := api.GetUpdates(t.Context(), 0, 0)
		require.NoError(t, err)
		require.Len(t, updates, 2)
	}
	updates, err := api.GetUpdates(t.Context(), 0, 0)
	require.NoError(t, err)
	first, err := telegram.UpdateID(updates[0])
	require.NoError(t, err)
	updates, err = api.GetUpdates(t.Context(), first+1, 10*time.Second)
	require.NoError(t, err)
	require.Len(t, updates, 1)
	require.Contains(t, string(updates[0]), "two")
	asked := server.Requests("getUpdates")[0].Args
	require.Equal(t, `["message","edited_message","callback_query","my_chat_member","stopped_message_generation"]`, asked["allowed_updates"])
	require.Equal(t, "100", asked["limit"])
}

func TestAPI_RegistersAWebhookAndTakesItBack(t *testing.T) {
	t.Parallel()
	server := fake.New(t)
	api := newAPI(t, server)
	require.NoError(t, api.SetWebhook(t.Context(), "https://example.test/hook", "s3cret"))
	set := server.Requests("setWebhook")[0].Args
	require.Equal(t, "https://example.test/hook", set["url"])
	require.Equal(t, "s3cret", set["secret_token"])
	require.Contains(t, set["allowed_updates"], "callback_query")

	_, err := api.GetUpdates(t.Context(), 0, 0)
	refusal, ok := errors.AsType[*telegram.APIError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, http.StatusConflict, refusal.Code)

	require.NoError(t, api.DeleteWebhook(t.Context()))
	require.Equal(t, "false", server.Requests("deleteWebhook")[0].Args["drop_pending_updates"])
	_, err = api.GetUpdates(t.Context(), 0, 0)
	require.NoError(t, err)
}

func TestAPI_AnswersPresses(t *testing.T) {
	t.Parallel()
	server := fake.New(t)
	api := newAPI(t, server)
	id := server.Press(5, 5, 1, "x")
	require.NoError(t, api.AnswerCallback(t.Context(), id, "done"))
	text, answered := server.Pressed(id)
	require.True(t, answered)
	require.Equal(t, "done", text)
	require.NoError(t, api.AnswerCallback(t.Context(), server.Press(5, 5, 1, "x"), ""))
}

func TestAPI_ErrorsTellRefusalsFromSilence(t *testing.T) {
	t.Parallel()
	server := fake.New(t)
	api := newAPI(t, server)
	server.Script("getMe",
		fake.Answer{RetryAfter: 33}, fake.Answer{MigrateTo: -100200}, fake.Answer{Code: 502, Raw: "<html>" + server.Token() + "</html>"},
		fake.Answer{Code: 400, Description: "Bad Request: no " + server.Token()}, fake.Answer{Raw: "{", Code: 200}, fake.Answer{Reset: true},
	)
	for _, want := range []*telegram.APIError{
		{Code: 429, Description: "Too Many Requests: retry after 33", RetryAfter: 33 * time.Second},
		{Code: 400, Description: "Bad Request: group chat was upgraded to a supergroup chat", MigrateTo: "-100200"},
		{Code: 502, Description: "Bad Gateway"},
		{Code: 400, Description: "Bad Request: no <token>"},
	} {
		_, err := api.GetMe(t.Context())
		require.Equal(t, error(want), err)
	}
	for range 2 {
		_, err := api.GetMe(t.Context())
		silence, ok := errors.AsType[*telegram.CallError](err)
		require.True(t, ok, "%v", err)
		require.True(t, silence.Reached)
		require.NotContains(t, err.Error(), server.Token())
	}
}

func TestAPI_ANameThatIsNotFoundReachesNobody(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]error{
		"look-up": &net.DNSError{Err: "no such host", Name: "api.example", IsNotFound: true},
		"refused": &net.OpError{Op: "dial", Err: errors.New("connection refused")},
	} {
		hc := &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, dial },
		}}
		api, err := telegram.NewAPI("1:secret", "http://api.example", hc)
		require.NoError(t, err)
		_, err = api.GetMe(t.Context())
		silence, ok := errors.AsType[*telegram.CallError](err)
		require.True(t, ok, name)
		require.False(t, silence.Reached, name)
		require.ErrorIs(t, err, dial)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestAPI_NoticesThatTheTokenIsAnotherBots(t *testing.T) {
	t.Parallel()
	server := fake.New(t)
	server.Script("getMe", fake.Answer{Raw: `{"ok":true,"result":{"id":666,"username":"x"}}`, Code: 200})
	_, err := newAPI(t, server).GetMe(t.Context())
	require.EqualError(t, err, "telegram: the token belongs to bot 999000111, the server says 666")
}
