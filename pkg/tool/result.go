package tool

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// NoOutput stands for an empty observation: providers refuse empty ones.
const NoOutput = "(no output)"

// Readable returns an observation that every model and store takes: valid UTF-8, without NUL, never blank.
func Readable(content string) string {
	content = strings.ReplaceAll(strings.ToValidUTF8(content, "\uFFFD"), "\x00", "")
	if strings.TrimSpace(content) == "" {
		return NoOutput
	}
	return content
}

// Bounded returns a result of at most limit bytes of content, which keeps its beginning and its end around a marker that
// states the original size. Characters stay whole.
func Bounded(r Result, limit int) Result {
	size := len(r.Content)
	if size <= limit {
		return r
	}
	if !r.Truncated {
		r.FullSize = int64(size)
	}
	r.Truncated = true
	marker := fmt.Sprintf("\n[... cut here: the whole output has %d bytes ...]\n", r.FullSize)
	room := max(limit-len(marker), 0)
	head := wholeRunes(r.Content[:room*2/3])
	tail := r.Content[size-room/3:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	content := head + marker + tail
	r.Content = wholeRunes(content[:min(len(content), limit)])
	return r
}

// wholeRunes drops the beginning of a character at the end of text.
func wholeRunes(text string) string {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRuneInString(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}
