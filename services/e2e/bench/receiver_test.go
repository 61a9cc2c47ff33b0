package main

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func postReply(t *testing.T, r *receiver, secret, id, conversation, text string) int {
	t.Helper()
	key, err := webhook.ParseKey(secret)
	require.NoError(t, err)
	body := fmt.Appendf(nil, `{"message_id":%q,"conversation":%q,"text":%q}`, id, conversation, text)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url(), bytes.NewReader(body))
	require.NoError(t, err)
	key.SetHeaders(req.Header, id, time.Now(), body)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestReceiver_HandsOutSignedRepliesOnce(t *testing.T) {
	t.Parallel()
	r, err := startReceiver(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.close()) })
	answer := r.expect("c1")
	require.Equal(t, http.StatusNoContent, postReply(t, r, outSecret, "m1", "c1", "hello"))
	require.Equal(t, "hello", (<-answer).text)
	require.Empty(t, r.problems())

	require.Equal(t, http.StatusNoContent, postReply(t, r, outSecret, "m1", "c1", "hello"))
	require.Equal(t, http.StatusNoContent, postReply(t, r, outSecret, "m2", "c1", "hello"))
	require.Equal(t, http.StatusUnauthorized, postReply(t, r, inSecret, "m3", "c1", "hello"))
	r.expect("c2")
	r.forget("c2")
	require.Equal(t, http.StatusNoContent, postReply(t, r, outSecret, "m4", "c2", "late"))
	problems := r.problems()
	require.Len(t, problems, 4)
	require.EqualError(t, problems[0], "reply m1 came twice")
	require.EqualError(t, problems[1], "reply m2 came, and nobody waits for it")
	require.ErrorIs(t, problems[2], webhook.ErrSignature)
	require.EqualError(t, problems[3], "reply m4 came, and nobody waits for it")
	require.Empty(t, r.problems())
}
