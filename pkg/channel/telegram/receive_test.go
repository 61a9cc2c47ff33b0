package telegram_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
)

func TestVerifyWebhook_AcceptsOnlyTheSecret(t *testing.T) {
	t.Parallel()
	header := func(value string) http.Header {
		h := http.Header{}
		h.Set("X-Telegram-Bot-Api-Secret-Token", value)
		return h
	}
	require.NoError(t, telegram.VerifyWebhook(header("s3cret_-"), "s3cret_-"))
	for _, got := range []string{"", "s3cret_", "s3cret_-x", "S3cret_-"} {
		require.ErrorIs(t, telegram.VerifyWebhook(header(got), "s3cret_-"), telegram.ErrSecret, got)
	}
	require.ErrorIs(t, telegram.VerifyWebhook(http.Header{}, "s3cret_-"), telegram.ErrSecret)
	require.ErrorIs(t, telegram.VerifyWebhook(header(""), ""), telegram.ErrSecret, "no secret accepts nothing")
}
