package accept

import (
	"encoding/hex"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/session"
)

// Receipt proves that a message is stored.
type Receipt struct {
	UID, SKey string
	// Duplicate: the same message was stored a short while ago. Later repetitions are not seen here but by admission.
	Duplicate bool
}

// MessageID is the public name of an accepted message, which clients follow it by.
func (r Receipt) MessageID() string { return MessageID(r.SKey, r.UID) }

const (
	idPrefix = "msg_"
	uidLen   = 32
)

// MessageID returns the public name of a message: msg_<skey>_<uid>.
func MessageID(skey, uid string) string { return idPrefix + skey + "_" + uid }

// ParseMessageID takes a public name apart.
func ParseMessageID(id string) (skey, uid string, ok bool) {
	rest, ok := strings.CutPrefix(id, idPrefix)
	skey, uid, cut := strings.Cut(rest, "_")
	if !ok || !cut || len(skey) != session.SKeyLen || len(uid) != uidLen {
		return "", "", false
	}
	if strings.Trim(skey, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", "", false
	}
	if _, err := hex.DecodeString(uid); err != nil {
		return "", "", false
	}
	return skey, uid, true
}
