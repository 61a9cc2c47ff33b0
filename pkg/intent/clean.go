// Package intent reads what a person wrote: it removes invisible characters, builds the form that text is matched by,
// and finds commands. The ingress and the turn use the same functions, so that both see the same words.
//
// All functions are pure and safe for concurrent use.
package intent

import (
	"strings"
	"unicode"
)

// Clean drops what no reader sees and no writer means: BOM, zero-width space, bidirectional marks and NUL; bytes that
// are not UTF-8 become U+FFFD. The joiners U+200C and U+200D stay: they are part of words and of emoji.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if invisible(r) {
			return -1
		}
		return r
	}, text)
}

func invisible(r rune) bool {
	switch {
	case r == 0, r == '\uFEFF', r == '\u200B', r == '\u200E', r == '\u200F':
		return true
	case r >= '\u202A' && r <= '\u202E', r >= '\u2066' && r <= '\u2069':
		return true
	default:
		return false
	}
}

// Fold returns the form of a text that is only for matching, never shown or stored: cleaned, every run of white space
// (no-break and ideographic ones too) one space, none at the ends, full-width forms and typographic punctuation as
// their ASCII counterparts. Case is kept.
func Fold(text string) string {
	return strings.Join(strings.FieldsFunc(strings.Map(foldRune, text), unicode.IsSpace), " ")
}

// The full-width forms of ASCII stand in one block, in the order of ASCII.
const (
	fullWidthFirst = '\uFF01'
	fullWidthLast  = '\uFF5E'
	fullWidthShift = fullWidthFirst - '!'
)

func foldRune(r rune) rune {
	switch {
	case invisible(r):
		return -1
	case r >= fullWidthFirst && r <= fullWidthLast:
		return r - fullWidthShift
	}
	switch r {
	case '。', '｡':
		return '.'
	case '、', '､':
		return ','
	case '“', '”', '„', '«', '»', '「', '」':
		return '"'
	case '‘', '’', '‚':
		return '\''
	case '‐', '‑', '‒', '–', '—', '―', '−':
		return '-'
	default:
		return r
	}
}
