package telegram

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
)

// HeaderSecret carries the secret that a webhook was registered with.
const HeaderSecret = "X-Telegram-Bot-Api-Secret-Token" //nolint:gosec // a header's name

// ErrSecret: the request does not carry the secret of the webhook, so it is not from Telegram.
var ErrSecret = errors.New("telegram: wrong or missing secret token")

// VerifyWebhook checks that a request carries secret, in constant time. An empty secret accepts nothing.
func VerifyWebhook(header http.Header, secret string) error {
	got, want := sha256.Sum256([]byte(header.Get(HeaderSecret))), sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 || secret == "" {
		return ErrSecret
	}
	return nil
}
