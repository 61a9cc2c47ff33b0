package builtin

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/tool"
)

// Output keeps the beginning and the end of what is written to it, so that a flood costs no memory. One goroutine uses
// it at a time.
type Output struct {
	limit      int
	head, tail []byte
	total      int64
}

// NewOutput returns an output that keeps about limit bytes.
func NewOutput(limit int) *Output { return &Output{limit: limit} }

func (o *Output) half() int { return o.limit / 2 }

// Write never fails.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	o.total += int64(n)
	room := min(o.half()-len(o.head), n)
	o.head = append(o.head, p[:room]...)
	o.tail = append(o.tail, p[room:]...)
	if len(o.tail) > 2*o.limit {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-o.half():]...)
	}
	return n, nil
}

// markerBytes is room for the marker with any number.
const markerBytes = 48

// Result returns what was kept, with footer on a line of its own at the end. The content is at most limit bytes; what
// was cut out of the middle is replaced by a marker that says how much it was.
func (o *Output) Result(outcome tool.Outcome, footer string) Result {
	var text string
	truncated := o.total+int64(len(footer))+1 > int64(o.limit)
	if truncated {
		text = o.cut(o.limit - markerBytes - len(footer))
	} else {
		text = clean(append(o.head, o.tail...))
	}
	if footer != "" && text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	r := result(outcome, text+footer)
	r.Truncated = truncated
	r.FullSize = o.total
	if !truncated {
		r.FullSize = int64(len(r.Content))
	}
	return r
}

// cut keeps half of keep bytes from either end, at character borders.
func (o *Output) cut(keep int) string {
	head := o.head[:min(len(o.head), keep/2)]
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRune(head); r != utf8.RuneError || size != 1 {
			break
		}
		head = head[:len(head)-1]
	}
	tail := o.tail[max(0, len(o.tail)-keep/2):]
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	missing := o.total - int64(len(head)+len(tail))
	return fmt.Sprintf("%s\n[%d bytes cut]\n%s", clean(head), missing, clean(tail))
}

// clean returns valid UTF-8 without NUL. Each run of invalid bytes becomes one "?": a replacement that is never longer
// than what it replaces keeps the limit.
func clean(raw []byte) string { return Clean(string(raw)) }

// Clean returns text as valid UTF-8 without NUL, never longer than it was.
func Clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "")
}

// Clip makes any result fit: clean text of at most limit bytes.
func Clip(r Result, limit int) Result {
	if len(r.Content) <= limit {
		r.Content = Clean(r.Content)
		return r
	}
	o := NewOutput(limit)
	_, _ = o.Write([]byte(r.Content)) // never fails
	clipped := o.Result(r.Outcome, "")
	clipped.Changed = r.Changed
	clipped.FullSize = max(r.FullSize, clipped.FullSize)
	return clipped
}
