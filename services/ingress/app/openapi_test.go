package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/services/internal/httpapi/openapitest"
)

// exchange sends a request whose answer is held to docs/openapi.yaml.
func exchange(t *testing.T, spec *openapitest.Spec, method, url string, header http.Header, body string) int {
	t.Helper()
	client := &http.Client{Transport: &openapitest.Transport{
		RoundTripper: &http.Transport{DisableKeepAlives: true}, Spec: spec,
		Report: func(err error) { t.Errorf("not as described: %v", err) },
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header = header
	resp, err := client.Do(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestOpenAPI_DescribesTheDoors(t *testing.T) {
	t.Parallel()
	spec, err := openapitest.Load("../../../docs/openapi.yaml")
	require.NoError(t, err)
	d, tg := setup(t), newTelegram(t)
	bot := tg.webhook(tg.settings(), tg.Backends())
	root := strings.TrimSuffix(d.url, "/v1/hooks/")
	for _, route := range spec.Routes("platforms", false) {
		path := strings.ReplaceAll(route.Pattern, "{channel}", "none")
		require.Equal(t, http.StatusNotFound, exchange(t, spec, route.Method, root+path, jsonHeader(), `{}`), path)
		require.Equal(t, http.StatusMethodNotAllowed, exchange(t, spec, http.MethodGet, root+path, jsonHeader(), ""), "the path is served")
	}

	const body = `{"data":{"text":"hi","room":"r"}}`
	for _, c := range []struct {
		channel, body string
		header        http.Header
		want          int
	}{
		{"open", `{"text":"hi","conversation":"c"}`, jsonHeader(), 202},
		{"signed", body, signed(t, hookSecret, "m1", time.Now(), body), 202},
		{"signed", body, jsonHeader(), 401},
		{"open", `{"text":[],"conversation":"c"}`, jsonHeader(), 400},
		{"open", `{"text":"hi"}`, http.Header{"Content-Type": {"text/plain"}}, 415},
		{"open", strings.Repeat(" ", 65<<10), jsonHeader(), 413},
	} {
		require.Equal(t, c.want, exchange(t, spec, http.MethodPost, d.url+c.channel, c.header, c.body), c.channel+c.body)
	}

	known := jsonHeader("X-Telegram-Bot-Api-Secret-Token", webhookToken)
	await.True(t, patience, func() bool { // 503 until the platform has said who the bot is
		return exchange(t, spec, http.MethodPost, bot, known, `{"update_id":1}`) == http.StatusOK
	})
	require.Equal(t, http.StatusUnauthorized, exchange(t, spec, http.MethodPost, bot, jsonHeader(), `{"update_id":1}`))
	require.Equal(t, http.StatusBadRequest, exchange(t, spec, http.MethodPost, bot, known, `{`))
}
