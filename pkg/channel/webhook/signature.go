package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/config"
)

// Headers of Standard Webhooks.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// Window is how far the time of a signature may be from ours, in both directions.
const Window = 5 * time.Minute

const (
	secretPrefix    = "whsec_"
	signatureScheme = "v1,"
	maxHeaderID     = 256
)

// ErrSignature: the request is not signed by anybody who knows a secret of the channel, or not now.
var ErrSignature = errors.New("webhook: signature refused")

// Key signs and verifies. It does not print.
type Key struct{ raw []byte }

// String keeps the key out of logs and errors.
func (Key) String() string { return "redacted" }

// GoString keeps the key out of %#v.
func (Key) GoString() string { return "redacted" }

// ParseKey reads a secret: "whsec_" and base64, or any other text as it stands.
func ParseKey(secret string) (Key, error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return Key{raw: []byte(secret)}, nil
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw) == 0 {
		return Key{}, errors.New("secret after whsec_ is not base64") // without the secret
	}
	return Key{raw: raw}, nil
}

// readKeys reads secrets anew, so that a rotated file is seen without a restart.
func readKeys(secrets []config.Secret) ([]Key, error) {
	keys := make([]Key, 0, len(secrets))
	for _, s := range secrets {
		value, err := s.Value()
		if err != nil {
			return nil, fmt.Errorf("read webhook secret: %w", err)
		}
		key, err := ParseKey(value)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", s, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Sign returns the webhook-signature of a body.
func (k Key) Sign(id string, at time.Time, body []byte) string {
	return signatureScheme + base64.StdEncoding.EncodeToString(k.mac(id, strconv.FormatInt(at.Unix(), 10), body))
}

func (k Key) mac(id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, k.raw)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// SetHeaders signs a body for header.
func (k Key) SetHeaders(header http.Header, id string, at time.Time, body []byte) {
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(HeaderSignature, k.Sign(id, at, body))
}

// Verify checks the signature of the raw body against every key, in constant time. The error is ErrSignature with the
// reason, never with a key or an expected signature.
func Verify(keys []Key, header http.Header, body []byte, now time.Time) error {
	id, timestamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	if id == "" || len(id) > maxHeaderID {
		return fmt.Errorf("%w: %s must have 1 to %d bytes", ErrSignature, HeaderID, maxHeaderID)
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s is not a number of seconds", ErrSignature, HeaderTimestamp)
	}
	if off := now.Sub(time.Unix(seconds, 0)); off > Window || off < -Window {
		return fmt.Errorf("%w: %s is more than %s from now", ErrSignature, HeaderTimestamp, Window)
	}
	signatures := header.Get(HeaderSignature)
	if signatures == "" {
		return fmt.Errorf("%w: %s is missing", ErrSignature, HeaderSignature)
	}
	for _, k := range keys {
		if k.matches(signatures, k.mac(id, timestamp, body)) {
			return nil
		}
	}
	return fmt.Errorf("%w: no signature matches", ErrSignature)
}

// matches compares each signature of the space-separated list; other schemes than v1 are skipped.
func (Key) matches(signatures string, want []byte) bool {
	found := false
	for s := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(s, signatureScheme)
		if !ok {
			continue
		}
		got, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && hmac.Equal(got, want) {
			found = true
		}
	}
	return found
}
