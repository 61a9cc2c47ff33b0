package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
)

func get(url, key string) (code int, body string, err error) {
	return call(http.MethodGet, url, "", http.Header{"Authorization": {"Bearer " + key}})
}

func call(method, url, body string, header http.Header) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header = header.Clone()
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return 0, "", err
	}
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), errors.Join(err, resp.Body.Close())
}

// hook posts a signed message to the webhook channel and returns the answer.
func (s *stack) hook(id, conversation, text string) (code int, body string) {
	s.t.Helper()
	raw, err := json.Marshal(map[string]string{"conversation": conversation, "user": "u-" + conversation, "text": text})
	require.NoError(s.t, err)
	return s.post(id, string(raw))
}

func (s *stack) post(id, body string) (code int, answer string) {
	s.t.Helper()
	code, answer, err := call(http.MethodPost, "http://"+s.hooks+"/v1/hooks/ci", body, signed(s.t, id, body))
	require.NoError(s.t, err)
	return code, answer
}

func signed(t *testing.T, id, body string) http.Header {
	t.Helper()
	key, err := webhook.ParseKey(inSecret)
	require.NoError(t, err)
	header := http.Header{"Content-Type": {"application/json"}}
	key.SetHeaders(header, id, time.Now(), []byte(body))
	return header
}
