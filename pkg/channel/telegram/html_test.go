package telegram

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/render"
)

func TestFormat_WritesHTMLAndAPlainTextThatReadsAlike(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, markdown, html, plain string }{
		{"marks", "**a** *b* ~~c~~ `d<`", "<b>a</b> <i>b</i> <s>c</s> <code>d&lt;</code>", "a b c d<"},
		{"escapes", `1 < 2 & 3 > "2" \*`, "1 &lt; 2 &amp; 3 &gt; &quot;2&quot; *", `1 < 2 & 3 > "2" *`},
		{"html as text", "<b>x</b> & y", "&lt;b&gt;x&lt;/b&gt; &amp; y", "<b>x</b> & y"},
		{"code", "```go\na < b\n```", "<pre><code class=\"language-go\">a &lt; b</code></pre>", "a < b"},
		{"code without language", "```\na\n```", "<pre>a</pre>", "a"},
		{"language that is markup", "```\"><b>\na\n```", "<pre><code class=\"language-&quot;&gt;&lt;b&gt;\">a</code></pre>", "a"},
		{"link", `[a*b*](https://x.y/?q="1"&r)`, `<a href="https://x.y/?q=&quot;1&quot;&amp;r">a<i>b</i></a>`, `ab (https://x.y/?q="1"&r)`},
		{"bare link", "https://x.y/a_b", "https://x.y/a_b", "https://x.y/a_b"},
		{"link that mentions", "[Bob](tg://user?id=5)", "Bob (tg://user?id=5)", "Bob (tg://user?id=5)"},
		{"relative link", "[a < b](./<c)", "a &lt; b (./&lt;c)", "a < b (./<c)"},
		{"script", "**[a](javascript:x)**", "<b>a (javascript:x)</b>", "a (javascript:x)"},
		{"image", "![a](https://x.y/i.png)", `<a href="https://x.y/i.png">a</a>`, "a (https://x.y/i.png)"},
		{"heading", "## A & B", "<b>A &amp; B</b>", "A & B"},
		{"quotes", "> a\n> > b", "<blockquote>a\n\n&gt; b</blockquote>", "> a\n> \n> > b"},
		{"lists", "1. a\n   - b\n2. c", "1. a\n  • b\n2. c", "1. a\n  • b\n2. c"},
		{"table", "|a|b|\n|-|-|\n|1|<|", "<pre>a | b\n--+--\n1 | &lt;</pre>", "a | b\n--+--\n1 | <"},
		{"nothing to see", " [a]: http://x ", "[a]: http://x", "[a]: http://x"},
		{"marks that break off", "a **b ```c", "a **b ```c", "a **b ```c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, formatted{html: c.html, plain: c.plain}, format(c.markdown, maxText))
		})
	}
}

// strip removes tags and resolves entities the way a server does.
func strip(html string) string {
	var b strings.Builder
	for i := 0; i < len(html); i++ {
		if html[i] == '<' {
			i += strings.IndexByte(html[i:], '>')
			continue
		}
		b.WriteByte(html[i])
	}
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&amp;", "&").Replace(b.String())
}

// nested reports whether all tags are closed, in their order.
func nested(html string) bool {
	var open []string
	for _, m := range regexp.MustCompile("<(/?)([a-z]+)[^>]*>").FindAllStringSubmatch(html, -1) {
		switch n := len(open); {
		case m[1] == "":
			open = append(open, m[2])
		case n == 0 || open[n-1] != m[2]:
			return false
		default:
			open = open[:n-1]
		}
	}
	return len(open) == 0
}

func TestUnits_CountWhatTheHTMLShows(t *testing.T) {
	t.Parallel()
	require.Equal(t, 3, units("[ab](https://example.test/a/very/long/url)!"))
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{
			"word", " ", "\n", "\n\n", "😀", "**", "*", "_", "`", "```\n", "[x](http://a.b/c)", "[x](y)", "> ", "> > ", "- ", "1. ", "# ", "<b>", "&",
			"|a|b|\n|-|-|\n|c|d|\n", "~~", "\\", "---\n",
		})
		markdown := strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(t, "pieces"), "")
		f := format(markdown, maxText)
		if strings.TrimSpace(markdown) != "" {
			require.Equal(t, render.UTF16(strings.TrimSpace(strip(f.html))), units(markdown))
			require.True(t, nested(f.html), f.html)
		}
	})
}

func TestFormat_DropsURLsFromPlainTextThatWouldNotFit(t *testing.T) {
	t.Parallel()
	markdown := strings.Repeat("[a](https://example.test/"+strings.Repeat("x", 100)+") ", 60)
	f := format(markdown, maxText)
	require.Equal(t, strings.TrimSpace(strings.Repeat("a ", 60)), f.plain)
}

func TestHead_IsOneMessage(t *testing.T) {
	t.Parallel()
	f := head("```go\n" + strings.Repeat("x := 1\n", 5000))
	require.LessOrEqual(t, render.UTF16(strip(f.html)), maxText)
	require.True(t, strings.HasPrefix(f.html, "<pre><code class=\"language-go\">x := 1\n"))
	require.True(t, strings.HasSuffix(f.html, "</code></pre>"))
	require.Equal(t, formatted{}, head(" \n "))
}

func TestSplit_MakesOneMessageOfEachFileAndKeepsCaptionsShort(t *testing.T) {
	t.Parallel()
	a, b := channel.File{Ref: "a"}, channel.File{Ref: "b"}
	files, action := []channel.File{a, b}, []channel.Action{{ID: "x"}}
	long := strings.TrimSpace(strings.Repeat("word ", 300))
	for _, c := range []struct {
		name string
		part channel.Part
		want []channel.Part
	}{
		{"text", channel.Part{Markdown: "x", Notice: true, Actions: action, EditOf: "1"}, []channel.Part{{Markdown: "x", Notice: true, Actions: action, EditOf: "1"}}},
		{"nothing", channel.Part{Markdown: " \n"}, nil},
		{"caption", channel.Part{Markdown: "x", Files: files, Actions: action}, []channel.Part{{Markdown: "x", Files: []channel.File{a}}, {Files: []channel.File{b}, Actions: action}}},
		{"no caption", channel.Part{Files: files[:1]}, []channel.Part{{Files: []channel.File{a}}}},
		{"long caption", channel.Part{Markdown: long, Files: files, Notice: true}, []channel.Part{{Markdown: long, Notice: true}, {Files: []channel.File{a}, Notice: true}, {Files: []channel.File{b}, Notice: true}}},
		{"edit with a file", channel.Part{Markdown: "x", Files: files[:1], EditOf: "1"}, []channel.Part{{Markdown: "x", EditOf: "1"}, {Files: []channel.File{a}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := (&Sender{}).Split([]channel.Part{c.part})
			require.Equal(t, c.want, got)
			require.Equal(t, c.want, (&Sender{}).Split(got), "a second cut changes nothing")
		})
	}
}

func TestDraftID_IsStableAndNeverZero(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := rapid.String().Draw(t, "run")
		require.Positive(t, draftID(run))
		require.Less(t, draftID(run), int64(1)<<31)
	})
	require.Equal(t, int64(508472318), draftID("run-1"), "it outlives the process")
	require.NotEqual(t, draftID("a"), draftID("b"))
}
