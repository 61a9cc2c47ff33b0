package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/render"
)

// tags makes the calls of a dialect visible.
type tags struct{}

func (tags) Text(s string) string         { return strings.ReplaceAll(s, "<", "&lt;") }
func (tags) Strong(s string) string       { return "<b>" + s + "</b>" }
func (tags) Emphasis(s string) string     { return "<i>" + s + "</i>" }
func (tags) Strike(s string) string       { return "<s>" + s + "</s>" }
func (tags) Code(s string) string         { return "<code>" + s + "</code>" }
func (tags) Link(s, _, url string) string { return "<a " + url + ">" + s + "</a>" }
func (tags) Heading(s string) string      { return "<h>" + s + "</h>" }
func (tags) Block(s, lang string) string  { return "<pre " + lang + ">" + s + "</pre>" }
func (tags) Quote(s string, nested bool) string {
	if nested {
		return "<qq>" + s + "</qq>"
	}
	return "<q>" + s + "</q>"
}

func TestRender_WritesWhatMarkdownMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, markdown, tags, plain string }{
		{"emphasis", "a **b *c*** ~~d~~ `e*`", "a <b>b <i>c</i></b> <s>d</s> <code>e*</code>", "a b c d e*"},
		{"lines stay lines", "a\nb  \nc", "a\nb\nc", "a\nb\nc"},
		{"paragraphs", "a\n\n\n\nb", "a\n\nb", "a\n\nb"},
		{"escapes", `\*a\* 5\.00 \\`, `*a* 5.00 \`, `*a* 5.00 \`},
		{"entities once", "&lt; &amp;lt; &#38;lt; &copy &nope;", "&lt; &lt; &lt; &copy &nope;", "< &lt; &lt; &copy &nope;"},
		{"words with underscores", "snake_case_name", "snake_case_name", "snake_case_name"},
		{"html is text", "<b>x</b> **y** & z", "&lt;b>x&lt;/b> <b>y</b> & z", "<b>x</b> y & z"},
		{"html blocks are text", "<div>\n**x**\n</div>", "&lt;div>\n<b>x</b>\n&lt;/div>", "<div>\nx\n</div>"},
		{"headings", "# A *b*\ntext\n\nC\n===", "<h>A <i>b</i></h>\n\ntext\n\n<h>C</h>", "A b\n\ntext\n\nC"},
		{"fences", "```go title\na := 1 < 2\n\n  b\n```", "<pre go>a := 1 < 2\n\n  b</pre>", "a := 1 < 2\n\n  b"},
		{"an open fence", "x\n```py\nprint", "x\n\n<pre py>print</pre>", "x\n\nprint"},
		{"an empty fence", "x\n\n```\n```\n", "x", "x"},
		{"indented code", "x\n\n    y\n", "x\n\n<pre >y</pre>", "x\n\ny"},
		{"links", "[a *b*](http://x/y_(z) \"t\")", "<a http://x/y_(z)>a <i>b</i></a>", "a b (http://x/y_(z))"},
		{"reference links", "[a][1]\n\n[1]: http://x", "<a http://x>a</a>", "a (http://x)"},
		{"bare links", "see https://x.y/z_a, ok", "see <a https://x.y/z_a>https://x.y/z_a</a>, ok", "see https://x.y/z_a, ok"},
		{"mail", "<a@b.example>", "<a a@b.example>a@b.example</a>", "a@b.example"},
		{"images", "![a](http://x/p.png) ![](http://x/q.png)", "<a http://x/p.png>a</a> <a http://x/q.png>http://x/q.png</a>", "a (http://x/p.png) http://x/q.png"},
		{"bullets", "* a\n* b\n  * c\n\n    d\n* e", "• a\n• b\n  • c\n\n    d\n• e", "• a\n• b\n  • c\n\n    d\n• e"},
		{"loose bullets", "- a\n\n- b", "• a\n\n• b", "• a\n\n• b"},
		{"numbers", "3. a\n   - b\n4. c", "3. a\n  • b\n4. c", "3. a\n  • b\n4. c"},
		{"lines of items", "- a\n  b", "• a\n  b", "• a\n  b"},
		{"tasks", "- [x] a\n- [ ] b", "• ☑ a\n• ☐ b", "• ☑ a\n• ☐ b"},
		{"code in items is not indented", "- a\n  ```\n  x\n  ```", "• a\n<pre >x</pre>", "• a\nx"},
		{"quotes", "> a\n> > b\n\nc", "<q>a\n\n<qq>b</qq></q>\n\nc", "> a\n> \n> > b\n\nc"},
		{"rules", "a\n\n---\n\nb", "a\n\n———\n\nb", "a\n\n———\n\nb"},
		{
			"tables", "| a | bb |\n|---|---:|\n| 日本 | **2** |\n| c | 33 |", "<pre >a    | bb\n-----+---\n日本 |  2\nc    | 33</pre>",
			"a    | bb\n-----+---\n日本 |  2\nc    | 33",
		},
		{"nothing", "  \n\n", "", ""},
		{"only a definition", "[a]: http://x", "", ""},
		{"marks that break off", "a **b `c [d](http", "a **b `c [d](http", "a **b `c [d](http"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.tags, render.Render(c.markdown, tags{}))
			require.Equal(t, c.plain, render.Render(c.markdown, render.Plain{}))
		})
	}
}

func TestVisible_CountsNeitherURLsNorMarksOfQuotes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\n\nb\n\n> c", render.Render("> [a](http://x)\n>\n> b\n> > c", render.Visible{}))
}

func TestRender_TakesEveryText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		require.LessOrEqual(t, strings.Count(render.Render(text, render.Visible{}), ""), 40*(len(text)+1))
	})
}

func TestUnits(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4, render.UTF16("aé😀"))
	require.Equal(t, 3, render.Runes("aé😀"))
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{"", "**", "> - 1. # a", "|a|\n|-|\n||||", "- \n\n\n  -", "&#x110000;&#0;", "[][]", "\x00\xff", "![[a](b)](c)"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		render.Render(text, render.Plain{})
		render.Render(text, tags{})
	})
}
