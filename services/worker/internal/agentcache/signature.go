package agentcache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
)

// Config is what an agent is built from. What may change from message to message without building a new one, such as
// effort, output limit or the pool of keys, is no part of it.
type Config struct {
	Model string
	// APIKey enters the signature as a digest, whole: keys of one account often share their beginning.
	APIKey            string
	BaseURL           string
	Provider          string
	RequestedProvider string
	APIMode           string
	// Capabilities of the model, by name. Values are what [encoding/json] encodes.
	Capabilities map[string]any
	// Toolsets in any order. A name that occurs twice is not the same as once.
	Toolsets []string
	// Prompt is what is added to the system prompt.
	Prompt string
	// Settings are the other keys that an agent is built from, among them the generation of the tool registry and the
	// identity of the memory. Values are what [encoding/json] encodes.
	Settings map[string]any
	// UserID and UserIDAlt identify the speaker.
	UserID, UserIDAlt string
	SkipContextFiles  bool
}

// Signature is equal for configurations that build the same agent: 16 hex digits.
type Signature string

// Sign returns the signature. Nil and empty are the same; order matters nowhere. The error is that of a value that has
// no JSON form.
func (c Config) Sign() (Signature, error) {
	form, err := appendValue(nil, []any{
		c.Model, fingerprint(c.APIKey), c.BaseURL, c.Provider, c.RequestedProvider, c.APIMode,
		pairs(c.Capabilities), sorted(c.Toolsets), c.Prompt, pairs(c.Settings), c.UserID, c.UserIDAlt, c.SkipContextFiles,
	})
	if err != nil {
		return "", fmt.Errorf("sign agent configuration: %w", err)
	}
	sum := sha256.Sum256(form)
	return Signature(hex.EncodeToString(sum[:8])), nil
}

func fingerprint(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// pairs lists a map in the order of its keys.
func pairs(m map[string]any) []any {
	list := make([]any, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, []any{key, m[key]})
	}
	return list
}

func sorted(names []string) []any {
	list := make([]any, 0, len(names))
	for _, name := range slices.Sorted(slices.Values(names)) {
		list = append(list, name)
	}
	return list
}

// appendValue appends the one JSON form that every process computes for a value: lists with ", ", strings in ASCII. It is
// the form that signatures have always been made of.
func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return appendString(b, v), nil
	case []any:
		return appendList(b, v)
	default:
		form, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", v, err)
		}
		return append(b, form...), nil
	}
}

func appendList(b []byte, list []any) ([]byte, error) {
	b = append(b, '[')
	for i, item := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		var err error
		if b, err = appendValue(b, item); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		default:
			b = appendEscaped(b, r)
		}
	}
	return append(b, '"')
}

func appendEscaped(b []byte, r rune) []byte {
	const short = "\b\t\n\f\r"
	const names = "btnfr"
	for i := range short {
		if r == rune(short[i]) {
			return append(b, '\\', names[i])
		}
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		b = append(b, `\u`...)
		digits := strconv.AppendUint(nil, 0x10000+uint64(unit), 16)
		b = append(b, digits[1:]...)
	}
	return b
}
