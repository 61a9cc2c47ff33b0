package openaiapi

import (
	"errors"
	"slices"
	"strings"
)

// errDiverged: what comes next does not continue what was sent.
var errDiverged = errors.New("the answer begins anew with another text")

// gap divides passages.
const gap = "\n\n"

// prose is the text that a client got who can only append: passages, divided by blank lines. What an agent says before
// it calls tools is a passage of its own and stays.
//
//	text ──► open passage ──step──► closed, the next text begins another one
//	reset ──► text is compared with what was sent, and nothing is sent while it only repeats that
//
// A new attempt may begin at any step that its worker had stored, so its text may repeat everything from the beginning of
// any passage on, or begin behind the last. The earliest passage that fits decides, so that nothing is sent twice.
type prose struct {
	passages []string
	// closed: the last passage has ended.
	closed bool
	// again is what was said since a reset and is not sent; nil if there was none.
	again *prose
}

// text takes what is said and returns what has to be sent.
func (p *prose) text(s string) (string, error) {
	if p.again == nil {
		return p.add(s), nil
	}
	if _, err := p.again.text(s); err != nil {
		return "", err
	}
	return p.catchUp()
}

// step ends a passage.
func (p *prose) step() {
	if p.again != nil {
		p.again.step()
		return
	}
	p.closed = true
}

// reset begins anew; what was sent stays.
func (p *prose) reset() { p.again = &prose{} }

// add appends to what was sent.
func (p *prose) add(s string) string {
	if len(p.passages) > 0 && !p.closed {
		p.passages[len(p.passages)-1] += s
		return s
	}
	begun := len(p.passages) > 0
	p.passages, p.closed = append(p.passages, s), false
	if begun {
		return gap + s
	}
	return s
}

// catchUp returns what the new attempt has said beyond the text that was sent.
func (p *prose) catchUp() (string, error) {
	said := p.again.whole(0)
	for i := range p.starts() {
		sent := p.whole(i)
		if strings.HasPrefix(sent, said) && sent != said {
			return "", nil
		}
		rest, ok := strings.CutPrefix(said, sent)
		if !ok {
			continue
		}
		if i > 0 && sent == "" { // behind the last passage
			rest = gap + rest
		}
		p.passages, p.closed, p.again = slices.Concat(p.passages[:i], p.again.passages), p.again.closed, nil
		return rest, nil
	}
	return "", errDiverged
}

// starts is how many passages an attempt or the final text may begin with: each that there is, and the next one.
func (p *prose) starts() int {
	if p.closed || len(p.passages) == 0 {
		return len(p.passages) + 1
	}
	return len(p.passages)
}

// whole is the text from passage i on.
func (p *prose) whole(i int) string { return strings.Join(p.passages[i:], gap) }

// finish returns what is missing of the final text: the committed one, which may be trimmed where the sent one is not.
func (p *prose) finish(final string) (string, error) {
	p.again = nil
	if strings.TrimSpace(final) == "" {
		return "", nil
	}
	for i := range p.starts() {
		sent := p.whole(i)
		if sent == "" {
			return p.add(final), nil
		}
		if rest, ok := strings.CutPrefix(final, sent); ok {
			return rest, nil
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(final), strings.TrimSpace(sent)); ok {
			return rest, nil
		}
	}
	return "", errDiverged
}
