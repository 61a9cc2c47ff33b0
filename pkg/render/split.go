package render

import (
	"strings"
	"unicode/utf8"
)

// Split cuts Markdown into pieces of at most limit as measure counts, each of which stands alone. It cuts at block
// borders, else at lines, sentences or spaces, and only where nothing else is left between characters; blocks of code
// are closed and opened again, tables get their header again. White space at a cut is dropped. Text that fits is left as
// it is, text of white space gives nothing.
//
// Fences and headers that would take more than half of the limit are left out.
func Split(markdown string, limit int, measure func(string) int) []string {
	var pieces []string
	c := newCutter(markdown, limit, measure)
	for !c.done() {
		if piece := c.next(); strings.TrimSpace(piece) != "" {
			pieces = append(pieces, piece)
		}
	}
	return pieces
}

// Head returns the first piece of [Split].
func Head(markdown string, limit int, measure func(string) int) string {
	c := newCutter(markdown, limit, measure)
	for !c.done() {
		if piece := c.next(); strings.TrimSpace(piece) != "" {
			return piece
		}
	}
	return ""
}

// cutter takes pieces off the front of a text.
type cutter struct {
	src     string
	limit   int
	measure func(string) int

	// from is where the next piece begins, open what is written before it.
	from int
	open string

	// borders are read when the text turns out to be too long.
	borders *borders
}

func newCutter(src string, limit int, measure func(string) int) *cutter {
	// Broken text has no characters to cut between.
	return &cutter{src: strings.ToValidUTF8(src, "\uFFFD"), limit: max(limit, 1), measure: measure}
}

func (c *cutter) done() bool { return c.from >= len(c.src) }

// near is how many times the limit a rest may have to be measured at once. Beyond it, it hardly ever fits, and measuring
// the rest of a long text for each of its pieces would take too long.
const near = 3

func (c *cutter) next() string {
	if len(c.src)-c.from <= near*c.limit && c.restFits() {
		return c.rest()
	}
	if c.borders == nil {
		c.borders = readBorders(c.src, c.limit)
	}
	reach := c.reach()
	if reach == len(c.src) {
		return c.rest()
	}
	at := c.choose(reach)
	piece := c.piece(at)
	_, c.from, _, c.open = c.borders.cut(at)
	return piece
}

func (c *cutter) restFits() bool { return c.measure(c.open+c.src[c.from:]) <= c.limit }

func (c *cutter) rest() string {
	rest := c.open + c.src[c.from:]
	c.from = len(c.src)
	return rest
}

// piece is what a cut at a position yields.
func (c *cutter) piece(at int) string {
	end, _, closing, _ := c.borders.cut(at)
	if end <= c.from { // only white space before the cut
		return ""
	}
	return c.open + c.src[c.from:end] + closing
}

func (c *cutter) fits(at int) bool { return c.measure(c.piece(at)) <= c.limit }

// reach returns about the last position at which a cut leaves a piece that fits, the end of the text if all of it does. It
// only narrows the search: text that is cut elsewhere can measure a little more or less.
func (c *cutter) reach() int {
	low, high := c.from, c.from+c.limit
	for high < len(c.src) && c.fits(c.snap(high)) {
		low, high = high, high+(high-c.from)
	}
	if high >= len(c.src) {
		high = len(c.src)
		if c.restFits() {
			return high
		}
	}
	for high-low > 1 {
		middle := (low + high) / 2
		if c.fits(c.snap(middle)) {
			low = middle
		} else {
			high = middle
		}
	}
	return min(c.snap(low)+utf8.UTFMax, len(c.src)-1)
}

// snap moves a position back to the beginning of a character.
func (c *cutter) snap(at int) int {
	for at > c.from && at < len(c.src) && !utf8.RuneStart(c.src[at]) {
		at--
	}
	return at
}

// choose returns the best cut up to reach: of the best rank that is found far enough from the beginning, so that pieces
// are not small without need; else the last of the best rank.
func (c *cutter) choose(reach int) int {
	span := reach - c.from
	for rank := rankBlock; rank <= rankSpace; rank++ {
		low := c.from + span/2
		if rank <= rankItem {
			low = c.from + span/4
		}
		if at, ok := c.last(rank, low, reach); ok {
			return at
		}
	}
	for rank := rankBlock; rank <= rankRune; rank++ {
		if at, ok := c.last(rank, c.from, reach); ok {
			return at
		}
	}
	at := c.from + 1
	for at < len(c.src) && !utf8.RuneStart(c.src[at]) {
		at++
	}
	return at // not even one character fits
}

// last returns the last position of a rank between low, exclusive, and high at which the text can be cut.
func (c *cutter) last(rank rank, low, high int) (int, bool) {
	for at := high; at > low; at-- {
		if c.borders.rank[at] == rank && strings.TrimSpace(c.piece(at)) != "" && c.fits(at) {
			return at, true
		}
	}
	return 0, false
}
