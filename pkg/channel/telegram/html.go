package telegram

import (
	"net/url"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/render"
)

// html is the dialect of parse_mode HTML.
type html struct{}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}

func (html) Text(text string) string      { return escape(text) }
func (html) Strong(inner string) string   { return "<b>" + inner + "</b>" }
func (html) Emphasis(inner string) string { return "<i>" + inner + "</i>" }
func (html) Strike(inner string) string   { return "<s>" + inner + "</s>" }
func (html) Code(code string) string      { return "<code>" + escape(code) + "</code>" }
func (html) Heading(inner string) string  { return "<b>" + inner + "</b>" }

func (html) Link(inner, text, target string) string {
	switch {
	case !isWeb(target):
		return inner + escape(render.Plain{}.Link("", text, target)) // with the URL behind it
	case text == target:
		return inner // Telegram finds it
	default:
		return `<a href="` + escape(target) + `">` + inner + "</a>"
	}
}

// Block names the language in the only form that Telegram reads.
func (html) Block(code, language string) string {
	if language == "" {
		return "<pre>" + escape(code) + "</pre>"
	}
	return `<pre><code class="language-` + escape(language) + `">` + escape(code) + "</code></pre>"
}

// Quote: Telegram has no quotes in quotes.
func (html) Quote(inner string, nested bool) string {
	if nested {
		return render.MarkLines(inner, escape("> "))
	}
	return "<blockquote>" + inner + "</blockquote>"
}

// isWeb reports whether Telegram takes a URL for a link. Others it drops without a word, and tg:// links mention people.
func isWeb(target string) bool {
	u, err := url.Parse(target)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// visible is what is left of html after its markup is read.
type visible struct{ render.Visible }

func (visible) Link(inner, text, target string) string {
	if isWeb(target) {
		return inner
	}
	return render.Plain{}.Link(inner, text, target)
}

// Limits of Telegram, in UTF-16 units after markup.
const (
	maxText    = 4096
	maxCaption = 1024
)

// units is the length of Markdown as Telegram counts it: without the space around it.
func units(markdown string) int {
	text := strings.TrimSpace(render.Render(markdown, visible{}))
	if text == "" {
		text = strings.TrimSpace(markdown)
	}
	return render.UTF16(text)
}

// formatted is a text in the two ways it can be sent.
type formatted struct{ html, plain string }

// format renders Markdown. What shows nothing, such as the definition of a link, is sent as it is.
func format(markdown string, limit int) formatted {
	f := formatted{html: render.Render(markdown, html{}), plain: render.Render(markdown, render.Plain{})}
	if strings.TrimSpace(f.html) == "" {
		f = formatted{html: escape(strings.TrimSpace(markdown)), plain: strings.TrimSpace(markdown)}
	}
	if render.UTF16(f.plain) > limit { // URLs do not count in HTML
		f.plain = render.Render(markdown, visible{})
	}
	return f
}
