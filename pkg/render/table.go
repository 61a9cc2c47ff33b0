package render

import (
	"strings"

	"github.com/clipperhouse/uax29/v2/graphemes"
	extast "github.com/yuin/goldmark/extension/ast"
	"golang.org/x/text/width"
)

// table aligns the columns with spaces and rules off the header.
func (r *renderer) table(n *extast.Table) string {
	plain := renderer{source: r.source, dialect: Visible{}}
	var rows [][]string
	var widths []int
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			text := strings.TrimSpace(plain.inlines(cell, ""))
			if len(cells) == len(widths) {
				widths = append(widths, 0)
			}
			widths[len(cells)] = max(widths[len(cells)], columns(text))
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	for i, cells := range rows {
		if i == 1 {
			b.WriteString(rule(widths) + "\n")
		}
		b.WriteString(line(cells, widths, n.Alignments) + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func line(cells []string, widths []int, align []extast.Alignment) string {
	padded := make([]string, len(cells))
	for i, cell := range cells {
		space := strings.Repeat(" ", widths[i]-columns(cell))
		if i < len(align) && align[i] == extast.AlignRight {
			padded[i] = space + cell
		} else {
			padded[i] = cell + space
		}
	}
	return strings.TrimRight(strings.Join(padded, " | "), " ")
}

func rule(widths []int) string {
	parts := make([]string, len(widths))
	for i, w := range widths {
		parts[i] = strings.Repeat("-", w)
	}
	return strings.Join(parts, "-+-")
}

// columns is how wide a text is in a fixed-width font: a cluster is as wide as its first character.
func columns(text string) int {
	n := 0
	for g := graphemes.FromString(text); g.Next(); {
		switch width.LookupRune(first(g.Value())).Kind() {
		case width.EastAsianWide, width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}
