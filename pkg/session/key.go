package session

import (
	"crypto/sha256"
	"encoding/base32"
	"hash/fnv"
	"strings"
)

// Partitions is the number of fixed partitions. It can never change: stored rows and streams carry the number.
const Partitions = 64

// Options choose how much of a source goes into its key.
type Options struct {
	// GroupSessionsPerUser gives each member of a group a session of its own.
	GroupSessionsPerUser bool
	// ThreadSessionsPerUser does the same inside threads; it needs GroupSessionsPerUser.
	ThreadSessionsPerUser bool
	// Profile names the agent; "" and "default" share the namespace "main".
	Profile string
	// Aliases lists other ids of one WhatsApp user; nil means that none are known.
	Aliases Aliases
}

// DefaultOptions returns one session per member in groups and one shared session per thread.
func DefaultOptions() Options { return Options{GroupSessionsPerUser: true} }

// Key returns the session key of a source: colon-joined parts, without escaping, as in the single-process original
// (the vectors in testdata are binding). Keys are addresses: they are compared, never parsed.
func Key(src Source, opt Options) string {
	c := canonical(src, opt)
	thread, prospective := c.effectiveThread()
	chatType := c.ChatType
	if prospective {
		chatType = "thread"
	}
	parts := []string{namespace(opt.Profile), c.Platform, chatType}
	if c.Platform == "slack" {
		parts = appendPart(parts, c.Scope())
	}
	parts = appendPart(parts, c.ChatID)
	user := ""
	if c.isolatesUser(thread, opt) {
		user = c.Participant()
	}
	if c.isDM() {
		parts = appendPart(appendPart(parts, user), thread)
	} else {
		parts = appendPart(appendPart(parts, thread), user)
	}
	return strings.Join(parts, ":")
}

// SharedMultiUser reports whether several people write to the session of this source, so that the prompt has to say
// who said what. It looks at the real thread only, as the original does.
func SharedMultiUser(src Source, opt Options) bool {
	switch {
	case src.isDM():
		return false
	case src.ThreadID != "":
		return !opt.ThreadSessionsPerUser
	default:
		return !opt.GroupSessionsPerUser
	}
}

// skeyEncoding gives 26 characters for 16 bytes.
//
//nolint:gochecknoglobals // an encoding is never changed
var skeyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// SKeyLen is the length of every skey in bytes.
const SKeyLen = 26

// SKey returns the bounded, subject-safe form of (tenant, session key): 26 characters of [a-z2-7].
func SKey(tenant, sessionKey string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + sessionKey))
	return skeyEncoding.EncodeToString(sum[:16])
}

// Partition returns the partition of an skey, FNV-1a-32(skey) mod 64.
func Partition(skey string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(skey)) // hash.Hash never returns an error
	return int(h.Sum32() % Partitions)
}

// EscapeID escapes '%' and ':' in an id that a client chose freely (webhook, HTTP API), so that no two ids can build
// the same key.
func EscapeID(id string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A").Replace(id)
}

func namespace(profile string) string {
	switch profile {
	case "", "default":
		return "agent:main"
	case "main":
		return "agent:main~"
	default:
		return "agent:" + profile
	}
}

// The original tests the chat type exactly: "DM" and "private" are groups.
func (s Source) isDM() bool { return s.ChatType == "dm" }

func (s Source) effectiveThread() (id string, prospective bool) {
	if s.ThreadID != "" || s.isDM() {
		return s.ThreadID, false
	}
	return s.ProspectiveThread, s.ProspectiveThread != ""
}

func (s Source) isolatesUser(thread string, opt Options) bool {
	if s.isDM() {
		return s.ChatID == ""
	}
	return opt.GroupSessionsPerUser && (thread == "" || opt.ThreadSessionsPerUser)
}

func appendPart(parts []string, p string) []string {
	if p == "" {
		return parts
	}
	return append(parts, p)
}
