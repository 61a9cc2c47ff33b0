package render_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/render"
)

func TestEGR01_SplitCountsUTF16UnitsAndKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		text  string
		parts int
	}{
		{strings.Repeat("a", 4095) + "😀" + "b", 2},
		{strings.Repeat("😀", 2048), 1},
		{strings.Repeat("😀", 2049), 2},
		{strings.Repeat("a", 4094) + "👩‍💻", 2},
		{strings.Repeat("é", 4096), 1},
		{strings.Repeat("word ", 900), 2},
	} {
		parts := render.Split(c.text, 4096, render.UTF16)
		require.Len(t, parts, c.parts, "text %d", i+1)
		require.Equal(t, squeeze(c.text), squeeze(strings.Join(parts, "")))
		for _, p := range parts {
			require.LessOrEqual(t, render.UTF16(p), 4096)
			require.NotContains(t, p, "\uFFFD")
		}
	}
	require.Equal(t, []string{strings.Repeat("a", 4095), "😀b"}, render.Split(strings.Repeat("a", 4095)+"😀b", 4096, render.UTF16))
	require.Equal(t, "👩‍💻", render.Split(strings.Repeat("a", 4094)+"👩‍💻", 4096, render.UTF16)[1])
	for _, p := range render.Split(strings.Repeat("word ", 900), 4096, render.UTF16) {
		for word := range strings.FieldsSeq(p) {
			require.Equal(t, "word", word)
		}
	}
}

func TestEGR02_SplitClosesAndReopensCodeAcrossMessages(t *testing.T) {
	t.Parallel()
	text := "Here is the module:\n```py\n" + strings.Repeat("line = compute(1)\n", 300) + "```\nDone."
	parts := render.Split(text, 2000, render.Runes)
	require.Greater(t, len(parts), 2)
	require.True(t, strings.HasPrefix(parts[0], "Here is the module:\n```py\nline = compute(1)\n"))
	require.True(t, strings.HasSuffix(parts[len(parts)-1], "\n```\nDone."))
	lines := 0
	for i, p := range parts {
		require.LessOrEqual(t, render.Runes(p), 2000)
		require.Zero(t, strings.Count(p, "```")%2, p)
		require.True(t, i == 0 || strings.HasPrefix(p, "```py\n"), p)
		require.True(t, i == len(parts)-1 || strings.HasSuffix(p, "\n```"), p)
		for line := range strings.SplitSeq(p, "\n") {
			switch line {
			case "line = compute(1)":
				lines++
			case "Here is the module:", "```py", "```", "Done.":
			default:
				t.Errorf("unexpected line %q", line)
			}
		}
	}
	require.Equal(t, 300, lines)
	for _, p := range parts {
		require.Equal(t, []string{p}, render.Split(p, 2000, render.Runes), "nothing is split twice")
	}
}

func TestSplit_PrefersTheBestBorder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		limit      int
		want       []string
	}{
		{"fits", "a\n\nb", 10, []string{"a\n\nb"}},
		{"nothing", " \n\n ", 10, nil},
		{"empty", "", 10, nil},
		{"paragraphs", "one two three\n\nfour five six\n\nseven", 30, []string{"one two three\n\nfour five six", "seven"}},
		{"items", "- one two\n- three four\n- five six", 25, []string{"- one two\n- three four", "- five six"}},
		{"nested items", "- one\n  - two two two\n  - three three\n- four", 30, []string{"- one\n  - two two two", "- three three\n- four"}},
		{"lines", "one two three four\nfive six seven", 24, []string{"one two three four", "five six seven"}},
		{"sentences", "One is here. Two is there! Three", 27, []string{"One is here. Two is there!", "Three"}},
		{"sentences without spaces", "これは一つ目の文です。これは二つ目の文です。", 16, []string{"これは一つ目の文です。", "これは二つ目の文です。"}},
		{"spaces", "alpha beta gamma delta", 12, []string{"alpha beta", "gamma delta"}},
		{"not within emphasis", "one two **three four five**", 22, []string{"one two", "**three four five**"}},
		{"not within links", "see this [a b](http://x.y/z_a) now", 28, []string{"see this", "[a b](http://x.y/z_a) now"}},
		{"not within code", "see this `a b c d e f` now", 20, []string{"see this", "`a b c d e f` now"}},
		{"not within escapes", "aaaaaaa\\*bbbb", 8, []string{"aaaaaaa", "\\*bbbb"}},
		{"no new list", "it is seven or eight - nine", 21, []string{"it is seven or", "eight - nine"}},
		{"heading stays whole", "text text text\n\n# A heading", 20, []string{"text text text", "# A heading"}},
		{"indented code stays code", "text text text\n\n    code code", 18, []string{"text text text", "    code code"}},
		{"characters", strings.Repeat("x", 25), 10, []string{"xxxxxxxxxx", "xxxxxxxxxx", "xxxxx"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, render.Split(c.text, c.limit, render.Runes))
			head := ""
			if len(c.want) > 0 {
				head = c.want[0]
			}
			require.Equal(t, head, render.Head(c.text, c.limit, render.Runes))
		})
	}
}

func TestSplit_KeepsFramesInContainers(t *testing.T) {
	t.Parallel()
	code := strings.Repeat("x = 1\n", 20)
	for _, c := range []struct{ name, text, open, closing string }{
		{"tildes", "~~~go title\n" + code + "~~~", "~~~go\n", "\n~~~"},
		{"unclosed", "```go\n" + code, "```go\n", "\n```"},
		{"in a list", "- a\n  ```sh\n" + indent("  ", code) + "  ```", "  ```sh\n  x", "\n  ```"},
		{"in a quote", "> ```sh\n" + indent("> ", code) + "> ```", "> ```sh\n> x", "\n> ```"},
		{"table", "| a | b |\n|---|---|\n" + strings.Repeat("| 1 | 2 |\n", 20), "| a | b |\n|---|---|\n| 1", "| 1 | 2 |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			parts := render.Split(c.text, 90, render.Runes)
			require.Greater(t, len(parts), 1)
			for i, p := range parts {
				require.LessOrEqual(t, render.Runes(p), 90)
				require.True(t, i == 0 || strings.HasPrefix(p, c.open), p)
				require.True(t, i == len(parts)-1 || strings.HasSuffix(p, c.closing), p)
			}
		})
	}
	quote := "> " + strings.TrimSpace(strings.Repeat("word ", 30))
	for _, p := range render.Split(quote, 60, render.Runes) {
		require.True(t, strings.HasPrefix(p, "> word"), p)
	}
}

func TestSplit_LeavesOutFencesThatDoNotFit(t *testing.T) {
	t.Parallel()
	parts := render.Split("```language\n"+strings.Repeat("code ", 20)+"\n```", 16, render.Runes)
	for _, p := range parts {
		require.LessOrEqual(t, render.Runes(p), 16)
	}
}

func indent(prefix, lines string) string {
	return render.MarkLines(strings.TrimSuffix(lines, "\n"), prefix) + "\n"
}

// squeeze drops white space.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

func drawText(t *rapid.T) string {
	piece := rapid.SampledFrom([]string{
		"word", "a", " ", "  ", "\n", "\n\n", ". ", "! ", "😀", "👩‍💻", "e\u0301", "日本語。", "**", "*", "_", "~~", "`", "[x](http://a.b/c)", "\\*",
		"&lt;", "- ", "1. ", "# ", "> ", "<b>", "1 < 2", "snake_case", "\u00a0", "\t", "https://example.test/a_b", strings.Repeat("long", 30),
	})
	return strings.Join(rapid.SliceOfN(piece, 0, 120).Draw(t, "pieces"), "")
}

func TestSplit_LosesNothingAndKeepsTheLimit(t *testing.T) {
	t.Parallel()
	for name, measure := range map[string]func(string) int{
		"utf16": render.UTF16, "runes": render.Runes, "bytes": func(s string) int { return len(s) },
		"visible": func(s string) int { return render.UTF16(render.Render(s, render.Visible{})) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				text, limit := drawText(t), rapid.IntRange(30, 200).Draw(t, "limit")
				parts := render.Split(text, limit, measure)
				got := strings.Join(parts, "")
				if strings.Contains(text, "> ") { // the mark of a quote is repeated
					require.Equal(t, squeeze(strings.ReplaceAll(text, ">", "")), squeeze(strings.ReplaceAll(got, ">", "")))
				} else {
					require.Equal(t, squeeze(text), squeeze(got))
				}
				for _, p := range parts {
					require.LessOrEqual(t, measure(p), limit)
					require.NotEmpty(t, strings.TrimSpace(p))
					require.True(t, utf8.ValidString(p))
					require.Equal(t, []string{p}, render.Split(p, limit, measure))
				}
			})
		})
	}
}

func TestSplit_TearsNoCharacter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"👩‍💻", "e\u0301", "🇩🇪", "a", "😀", "क्षि"}), 1, 80).Draw(t, "text"), "")
		limit := rapid.IntRange(12, 60).Draw(t, "limit")
		var got []string
		for _, p := range render.Split(text, limit, render.UTF16) {
			got = append(got, clusters(p)...)
		}
		require.Equal(t, clusters(text), got)
	})
}

func clusters(s string) []string {
	var all []string
	for g := graphemes.FromString(s); g.Next(); {
		all = append(all, g.Value())
	}
	return all
}

func TestSplit_KeepsEveryLineOfCode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[ \t]{0,6}[a-z=()#*-]{0,30}`), 1, 60).Draw(t, "lines")
		limit := rapid.IntRange(80, 300).Draw(t, "limit")
		var got []string
		for _, p := range render.Split("```go\n"+strings.Join(lines, "\n")+"\n```", limit, render.Runes) {
			p, ok := strings.CutPrefix(p, "```go\n")
			require.True(t, ok)
			p, ok = strings.CutSuffix(p, "\n```")
			require.True(t, ok)
			got = append(got, strings.Split(p, "\n")...)
		}
		require.Equal(t, lines, got)
	})
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{"", "```", "> > ```\n> > x\n", "| a |\n|--|\n| b |\n", "1. - ```\n      x\n", "\\", "&", "[a](<b\n", "\xff\xfe"} {
		f.Add(s, 40)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		for _, p := range render.Split(text, limit%5000, render.UTF16) {
			if strings.TrimSpace(p) == "" {
				t.Errorf("empty piece of %q", text)
			}
		}
	})
}
