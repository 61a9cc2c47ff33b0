package render

import (
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/util"
)

// Render writes Markdown in a dialect: blocks with a blank line between, lists with bullets or numbers, tables as blocks
// of code with aligned columns, images as links, HTML as text. Markdown may break off anywhere. The result is "" if
// there is nothing to see.
func Render(markdown string, d Dialect) string {
	r := renderer{source: []byte(markdown), dialect: d}
	return strings.Trim(r.blocks(parse(markdown), "", "\n\n"), "\n")
}

type renderer struct {
	source  []byte
	dialect Dialect
	quotes  int
}

// blocks joins what the children of n show. Their lines, except those of code, begin with indent, the first one does
// not.
func (r *renderer) blocks(n ast.Node, indent, gap string) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		shown := r.block(c, indent)
		if shown == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(gap)
			if !isCode(c) {
				b.WriteString(indent)
			}
		}
		b.WriteString(shown)
	}
	return b.String()
}

func isCode(n ast.Node) bool {
	switch n.Kind() {
	case ast.KindCodeBlock, ast.KindFencedCodeBlock, extast.KindTable:
		return true
	default:
		return false
	}
}

func (r *renderer) block(n ast.Node, indent string) string {
	switch n := n.(type) {
	case *ast.Heading:
		if inner := r.inlines(n, indent); inner != "" {
			return r.dialect.Heading(inner)
		}
		return ""
	case *ast.FencedCodeBlock:
		return r.code(n, languageOf(string(n.Language(r.source))))
	case *ast.CodeBlock:
		return r.code(n, "")
	case *ast.Blockquote:
		return r.quote(n)
	case *ast.List:
		return r.list(n, indent)
	case *ast.ThematicBreak:
		return r.dialect.Text("———")
	case *extast.Table:
		return r.dialect.Block(r.table(n), "")
	case *ast.LinkReferenceDefinition:
		return ""
	default: // paragraphs and text
		return strings.TrimSpace(r.inlines(n, indent))
	}
}

func (r *renderer) code(n ast.Node, language string) string {
	code := strings.TrimRight(string(n.Lines().Value(r.source)), "\n")
	if strings.TrimSpace(code) == "" {
		return ""
	}
	return r.dialect.Block(code, language)
}

func (r *renderer) quote(n ast.Node) string {
	nested := r.quotes > 0
	r.quotes++
	inner := r.blocks(n, "", "\n\n")
	r.quotes--
	if inner == "" {
		return ""
	}
	return r.dialect.Quote(inner, nested)
}

func (r *renderer) list(n *ast.List, indent string) string {
	gap := "\n"
	if !n.IsTight {
		gap = "\n\n"
	}
	number := n.Start
	var items []string
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		marker := "• "
		if n.IsOrdered() {
			marker = strconv.Itoa(number) + string(n.Marker) + " "
			number++
		}
		items = append(items, r.dialect.Text(marker)+r.blocks(item, indent+"  ", gap))
	}
	return strings.Join(items, gap+indent)
}

func (r *renderer) inlines(n ast.Node, indent string) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b.WriteString(r.inline(c, indent))
	}
	return b.String()
}

func (r *renderer) inline(n ast.Node, indent string) string {
	switch n := n.(type) {
	case *ast.Text:
		shown := r.dialect.Text(r.read(n.Value(r.source), n.IsRaw()))
		if n.SoftLineBreak() || n.HardLineBreak() {
			return strings.TrimRight(shown, " ") + "\n" + indent
		}
		return shown
	case *ast.String:
		return r.dialect.Text(r.read(n.Value, n.IsRaw() || n.IsCode()))
	case *ast.CodeSpan:
		return r.dialect.Code(r.codeSpan(n))
	case *ast.Emphasis:
		if n.Level == 2 {
			return r.dialect.Strong(r.inlines(n, indent))
		}
		return r.dialect.Emphasis(r.inlines(n, indent))
	case *extast.Strikethrough:
		return r.dialect.Strike(r.inlines(n, indent))
	case *ast.Link:
		return r.link(n, string(n.Destination), indent)
	case *ast.Image:
		return r.link(n, string(n.Destination), indent)
	case *ast.AutoLink:
		label := string(n.Label(r.source))
		return r.dialect.Link(r.dialect.Text(label), label, string(n.URL(r.source)))
	case *extast.TaskCheckBox:
		if n.IsChecked {
			return r.dialect.Text("☑ ")
		}
		return r.dialect.Text("☐ ")
	default:
		return r.inlines(n, indent)
	}
}

// read resolves escapes and entities.
func (r *renderer) read(source []byte, raw bool) string {
	if raw {
		return string(source)
	}
	return string(unescape(source))
}

// unescape resolves "\*" and "&lt;", each once.
func unescape(source []byte) []byte {
	var out []byte
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case c == '\\' && i+1 < len(source) && util.IsPunct(source[i+1]):
			i++
			out = append(out, source[i])
		case c == '&':
			n := entityLength(source[i:])
			out = append(out, util.ResolveEntityNames(util.ResolveNumericReferences(source[i:i+n]))...)
			i += n - 1
		default:
			out = append(out, c)
		}
	}
	return out
}

// entityLength is the length of the entity that s begins with, 1 if it begins with none.
func entityLength(s []byte) int {
	for i := 1; i < len(s) && i < 40; i++ {
		switch c := s[i]; {
		case c == ';':
			return i + 1
		case c != '#' && !util.IsAlphaNumeric(c):
			return 1
		}
	}
	return 1
}

// codeSpan is the code; line ends are spaces in it.
func (r *renderer) codeSpan(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Value(r.source))
		}
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}

// link shows the URL itself where it has no text.
func (r *renderer) link(n ast.Node, url, indent string) string {
	url = string(unescape([]byte(url)))
	plain := renderer{source: r.source, dialect: Visible{}}
	label := plain.inlines(n, indent)
	if strings.TrimSpace(label) == "" {
		return r.dialect.Link(r.dialect.Text(url), url, url)
	}
	return r.dialect.Link(r.inlines(n, indent), label, url)
}
