package render

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// rank says how good a place is to cut at; lower is better.
type rank uint8

const (
	rankBlock rank = iota // before a block
	rankItem              // before an item of a list
	rankLine              // before a line, or a block in a block
	rankSentence
	rankSpace
	rankCluster   // between characters as a reader sees them
	rankMarkSpace // a space in marked text: the mark is torn
	rankMark      // within marked text
	rankToken     // within a link, code, an escape
	rankRune      // anywhere else
	rankNever     // within a character
)

// borders are the places at which a text can be cut.
type borders struct {
	src string
	// rank of each byte position.
	rank   []rank
	frames []frame
}

// frame is a stretch of text that does not stand alone when it is cut: code in fences, a table, a quote.
type frame struct {
	from, to int
	// closing ends the piece before a cut. open begins the piece behind it: openLine where the cut is before a line, openMid
	// where it is within one.
	closing, openLine, openMid string
	// verbatim: no white space is dropped.
	verbatim bool
}

func readBorders(src string, limit int) *borders {
	b := &borders{src: src, rank: make([]rank, len(src)+1)}
	for i := range b.rank {
		b.rank[i] = rankNever
		if i == len(src) || utf8.RuneStart(src[i]) {
			b.rank[i] = rankRune
		}
	}
	b.blocks(parse(src), rankBlock)
	for i, f := range b.frames { // frames that leave no room for text are not kept up
		if len(f.closing)+max(len(f.openLine), len(f.openMid)) > limit/2 {
			b.frames[i] = frame{verbatim: f.verbatim, from: f.from, to: f.to}
		}
	}
	return b
}

// cut returns where the piece before a cut ends and the one behind it starts, and what is added to both.
func (b *borders) cut(at int) (end, start int, closing, open string) {
	lineStart := b.startsLine(at)
	f, framed := b.frameAt(at)
	if framed && f.verbatim {
		end = at
		if lineStart {
			end = len(strings.TrimSuffix(strings.TrimSuffix(b.src[:at], "\n"), "\r"))
		}
		start = at
	} else {
		end = len(strings.TrimRightFunc(b.src[:at], unicode.IsSpace))
		start = len(b.src) - len(b.skipSpace(at))
	}
	if !framed {
		return end, start, "", ""
	}
	if lineStart {
		return end, start, f.closing, f.openLine
	}
	return end, start, f.closing, f.openMid
}

// skipSpace returns the text behind a cut. The indentation of indented code stays.
func (b *borders) skipSpace(at int) string {
	rest := strings.TrimLeftFunc(b.src[at:], unicode.IsSpace)
	skipped := b.src[at : len(b.src)-len(rest)]
	first := at + strings.LastIndexByte(skipped, '\n') + 1
	if b.startsLine(first) && b.rank[first] == rankBlock && isIndented(b.src[first:]) {
		return b.src[first:]
	}
	return rest
}

func (b *borders) startsLine(at int) bool { return at == 0 || b.src[at-1] == '\n' }

func isIndented(line string) bool {
	return strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
}

func (b *borders) frameAt(at int) (frame, bool) {
	for i := len(b.frames) - 1; i >= 0; i-- { // inner ones stand behind outer ones
		if f := b.frames[i]; at > f.from && at < f.to {
			return f, true
		}
	}
	return frame{}, false
}

func (b *borders) lineStart(at int) int { return strings.LastIndexByte(b.src[:at], '\n') + 1 }

func (b *borders) lineEnd(at int) int {
	if i := strings.IndexByte(b.src[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(b.src)
}

// better gives a position a rank unless it has a better one.
func (b *borders) better(at int, r rank) {
	if at > 0 && at < len(b.src) {
		b.rank[at] = min(b.rank[at], r)
	}
}

// blocks ranks the children of n; r is the rank of the places before them.
func (b *borders) blocks(n ast.Node, r rank) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if c.Pos() < 0 {
			continue
		}
		b.better(b.lineStart(c.Pos()), r)
		switch c := c.(type) {
		case *ast.FencedCodeBlock:
			b.fencedCode(c)
		case *ast.CodeBlock:
			b.code(c.Lines(), frame{verbatim: true})
		case *extast.Table:
			b.table(c)
		case *ast.List:
			b.blocks(c, rankItem)
		case *ast.Blockquote:
			b.frames = append(b.frames, frame{from: c.Pos(), to: b.end(c), openMid: "> "})
			b.blocks(c, rankLine)
		case *ast.ListItem:
			b.blocks(c, rankLine)
		default:
			b.words(c)
		}
	}
}

// end returns where n ends: where the next block begins.
func (b *borders) end(n ast.Node) int {
	for ; n != nil; n = n.Parent() {
		if next := n.NextSibling(); next != nil && next.Pos() >= 0 {
			return b.lineStart(next.Pos())
		}
	}
	return len(b.src)
}

var fenceMark = regexp.MustCompile("^(`{3,}|~{3,})(.*)")

// fencedCode: what stands before a fence (marks of quotes, indentation) stands before the new ones too.
func (b *borders) fencedCode(n *ast.FencedCodeBlock) {
	begin := b.lineStart(n.Pos())
	m := fenceMark.FindStringSubmatch(b.src[n.Pos():b.lineEnd(n.Pos())])
	if m == nil {
		return
	}
	prefix := framePrefix(b.src[begin:n.Pos()])
	open := prefix + m[1] + languageOf(m[2]) + "\n"
	b.code(n.Lines(), frame{closing: "\n" + prefix + m[1], openLine: open, openMid: open + prefix, verbatim: true})
}

// framePrefix keeps marks of quotes; a marker of a list becomes space, but never so much that the line is indented code.
func framePrefix(before string) string {
	prefix := strings.Map(func(r rune) rune {
		if r == '>' || r == '\t' {
			return r
		}
		return ' '
	}, before)
	if strings.Contains(prefix, ">") {
		return prefix
	}
	return strings.Repeat(" ", min(len(prefix), 3))
}

// code ranks the lines of a block of code. There is no cut before its first line nor behind its last: it would leave an
// empty block.
func (b *borders) code(lines *text.Segments, f frame) {
	if lines.Len() == 0 {
		return
	}
	f.from, f.to = lines.At(0).Start, b.lineEnd(lines.At(lines.Len()-1).Start)
	b.frames = append(b.frames, f)
	for i := range lines.Len() {
		start := lines.At(i).Start
		if i > 0 {
			b.better(b.lineStart(start), rankLine)
		}
		b.line(start, b.lineEnd(start), false)
	}
}

// table repeats the header. There is no cut before the first row.
func (b *borders) table(n *extast.Table) {
	first := n.FirstChild()
	if first == nil || first.NextSibling() == nil {
		return
	}
	begin, body := b.lineStart(n.Pos()), b.lineStart(first.NextSibling().Pos())
	b.frames = append(b.frames, frame{from: body, to: b.end(n), openLine: b.src[begin:body]})
	for row := first.NextSibling().NextSibling(); row != nil; row = row.NextSibling() {
		b.better(b.lineStart(row.Pos()), rankLine)
	}
}

// words ranks the text of a paragraph or a heading.
func (b *borders) words(n ast.Node) {
	lines := n.Lines()
	if lines == nil || lines.Len() == 0 {
		return
	}
	for i := range lines.Len() {
		seg := lines.At(i)
		if i > 0 && !startsBlock(b.src[seg.Start:]) {
			b.better(b.lineStart(seg.Start), rankLine)
		}
		b.line(seg.Start, min(b.lineEnd(seg.Start), seg.Stop), true)
	}
	from, to := lines.At(0).Start, lines.At(lines.Len()-1).Stop
	for _, m := range token.FindAllStringIndex(b.src[from:to], -1) {
		b.worse(from+m[0], from+m[1], rankToken)
	}
	b.marks(n, to)
}

// token is an escape or an entity.
var token = regexp.MustCompile("\\\\[!-/:-@\\[-`{-~]|&#?[A-Za-z0-9]+;")

// line ranks the places within a line.
func (b *borders) line(from, to int, prose bool) {
	if from >= to {
		return
	}
	for g := graphemes.FromString(b.src[from:to]); g.Next(); {
		at := from + g.Start()
		if at == from {
			continue
		}
		switch {
		case !unicode.IsSpace(first(g.Value())):
			b.better(at, rankCluster)
			if prose && endsWideSentence(b.src[from:at]) {
				b.better(at, rankSentence)
			}
		case prose && startsBlock(strings.TrimLeftFunc(b.src[at:to], unicode.IsSpace)):
			b.better(at, rankMarkSpace) // the rest would begin as a list or a heading
		case prose && sentenceEnd.MatchString(b.src[max(from, at-8):at]):
			b.better(at, rankSentence)
		default:
			b.better(at, rankSpace)
		}
	}
}

func first(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

var (
	sentenceEnd = regexp.MustCompile(`[.!?…]["'”’)\]*_]*$`)
	blockStart  = regexp.MustCompile("^(?:[-+*](?:\\s|$)|#{1,6}(?:\\s|$)|>|\\||\\d{1,9}[.)](?:\\s|$)|[-=_*]{3}|`{3}|~{3})")
)

func startsBlock(text string) bool { return blockStart.MatchString(text) }

// endsWideSentence: scripts without spaces end sentences with wide marks.
func endsWideSentence(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return strings.ContainsRune("。！？", r)
}

// marks makes the places within links, code and emphasis worse. to is where the text of n ends.
func (b *borders) marks(n ast.Node, to int) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		end := to
		if next := c.NextSibling(); next != nil && next.Pos() >= 0 {
			end = next.Pos()
		}
		switch c.Kind() {
		case ast.KindText, ast.KindString:
		case ast.KindEmphasis, extast.KindStrikethrough:
			b.worse(c.Pos(), end, rankMark)
			b.marks(c, end)
		default:
			start := end - len(strings.TrimLeftFunc(b.src[min(c.Pos(), end):end], unicode.IsSpace))
			b.worse(start, end, rankToken)
		}
	}
}

// worse lowers the places between from and to. Spaces in marked text stay better than other places in it.
func (b *borders) worse(from, to int, r rank) {
	for at := max(from, 0) + 1; at < to; at++ {
		switch was := b.rank[at]; {
		case r == rankMark && was <= rankSpace:
			b.rank[at] = rankMarkSpace
		default:
			b.rank[at] = max(was, r)
		}
	}
}
