package render

import (
	"strings"
)

// Dialect is how a platform writes what Markdown means. Arguments called inner are in the dialect already, all others
// are as a person reads them and have to be escaped.
type Dialect interface {
	Text(text string) string
	Strong(inner string) string
	Emphasis(inner string) string
	Strike(inner string) string
	Code(code string) string
	// Link shows inner and leads to url. text is inner without markup.
	Link(inner, text, url string) string
	Heading(inner string) string
	// Block is a block of code; language is "" if none is named.
	Block(code, language string) string
	// Quote holds blocks. nested: it stands in another quote.
	Quote(inner string, nested bool) string
}

// Plain is the dialect without markup, to be read where markup is not understood.
type Plain struct{}

// Text is text.
func (Plain) Text(text string) string { return text }

// Strong is inner.
func (Plain) Strong(inner string) string { return inner }

// Emphasis is inner.
func (Plain) Emphasis(inner string) string { return inner }

// Strike is inner.
func (Plain) Strike(inner string) string { return inner }

// Code is code.
func (Plain) Code(code string) string { return code }

// Link shows the URL behind the text, unless they are the same.
func (Plain) Link(inner, text, url string) string {
	if text == url || url == "" {
		return inner
	}
	return inner + " (" + url + ")"
}

// Heading is inner.
func (Plain) Heading(inner string) string { return inner }

// Block is the code.
func (Plain) Block(code, _ string) string { return code }

// Quote marks each line.
func (Plain) Quote(inner string, _ bool) string { return MarkLines(inner, "> ") }

// Visible is what a reader of a rich dialect sees as text: without URLs and marks of quotes. Platforms that count after
// markup count this.
type Visible struct{ Plain }

// Link is inner.
func (Visible) Link(inner, _, _ string) string { return inner }

// Quote is inner; only quotes in quotes are marked.
func (Visible) Quote(inner string, nested bool) string {
	if nested {
		return MarkLines(inner, "> ")
	}
	return inner
}

// MarkLines puts mark before each line.
func MarkLines(text, mark string) string {
	return mark + strings.ReplaceAll(text, "\n", "\n"+mark)
}
