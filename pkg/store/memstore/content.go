package memstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// checker collects the first reason for which Postgres would refuse content.
type checker struct {
	err error
}

func (c *checker) reject(what, why string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s: %s", store.ErrRejected, what, why)
	}
}

// text checks the values of text columns.
func (c *checker) text(what string, values ...string) {
	for _, v := range values {
		switch {
		case !utf8.ValidString(v):
			c.reject(what, "invalid UTF-8")
		case strings.IndexByte(v, 0) >= 0:
			c.reject(what, "NUL byte")
		}
	}
}

// json checks the values of jsonb columns; an empty value is null.
func (c *checker) json(what string, values ...json.RawMessage) {
	for _, v := range values {
		switch {
		case len(v) == 0:
		case !utf8.Valid(v):
			c.reject(what, "invalid UTF-8")
		case !json.Valid(v):
			c.reject(what, "invalid JSON")
		case !validEscapes(v):
			c.reject(what, "escape of NUL or of half a surrogate pair")
		}
	}
}

// array checks a jsonb value whose elements the statement counts, and counts them.
func (c *checker) array(what string, value json.RawMessage) int {
	c.json(what, value)
	if len(value) == 0 || c.err != nil {
		return 0
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil || elements == nil {
		c.reject(what, "not a JSON array")
	}
	return len(elements)
}

// validEscapes reports whether all \u escapes of valid JSON are characters that jsonb can hold.
func validEscapes(v []byte) bool {
	for {
		i := bytes.IndexByte(v, '\\')
		if i < 0 {
			return true
		}
		v = v[i:]
		if v[1] != 'u' {
			v = v[2:]
			continue
		}
		size := escapeSize(v)
		if size == 0 {
			return false
		}
		v = v[size:]
	}
}

// escapeSize is the size of the character escaped at the start of v, 0 if it is none.
func escapeSize(v []byte) int {
	const one, pair = len(`\u0000`), 2 * len(`\u0000`)
	first := escaped(v)
	switch {
	case first == 0:
		return 0
	case !utf16.IsSurrogate(first):
		return one
	case len(v) >= pair && v[one] == '\\' && v[one+1] == 'u' && utf16.DecodeRune(first, escaped(v[one:])) != utf8.RuneError:
		return pair
	default:
		return 0
	}
}

// escaped is the code unit of a \uXXXX escape; valid JSON has four hex digits there.
func escaped(v []byte) rune {
	n, err := strconv.ParseUint(string(v[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// cloneJSON copies what the caller may reuse; an empty value becomes nil.
func cloneJSON(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return nil
	}
	return bytes.Clone(v)
}
