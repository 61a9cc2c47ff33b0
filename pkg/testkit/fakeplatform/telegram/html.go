package telegram

import (
	"cmp"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// formatted is a text after its entities were parsed.
type formatted struct {
	text, html string
	entities   []Entity
}

// formatted reads a text argument under its parse mode, without the space around it.
func (c *call) formatted(arg string) (formatted, *apiError) {
	source := c.args[arg]
	f := formatted{text: source}
	switch mode := strings.ToLower(c.args["parse_mode"]); mode {
	case "":
		if err := c.object("entities", &f.entities); err != nil {
			return f, err
		}
	case "html":
		p := parser{source: source}
		if err := p.run(); err != nil {
			return f, err
		}
		f = formatted{text: p.text.String(), html: source, entities: p.entities}
	default:
		return f, badRequest("unsupported parse_mode")
	}
	return f.trim(), nil
}

// trim cuts the space around a text and moves the entities along.
func (f formatted) trim() formatted {
	lead := units(f.text) - units(strings.TrimLeftFunc(f.text, unicode.IsSpace))
	f.text = strings.TrimSpace(f.text)
	length := units(f.text)
	kept := f.entities[:0:0]
	for _, e := range f.entities {
		from, to := max(e.Offset-lead, 0), min(e.Offset-lead+e.Length, length)
		if to > from {
			e.Offset, e.Length = from, to-from
			kept = append(kept, e)
		}
	}
	slices.SortStableFunc(kept, func(a, b Entity) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.Length, a.Length))
	})
	f.entities = kept
	return f
}

// parser reads the HTML of the Bot API: a few tags, four named entities, and nothing else.
type parser struct {
	source   string
	text     strings.Builder
	length   int // of text in UTF-16 units
	open     []tag
	entities []Entity
}

type tag struct {
	name   string
	entity Entity
}

// reference is a character reference that the Bot API knows.
var reference = regexp.MustCompile(`^&(lt|gt|amp|quot|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});?`)

func (p *parser) run() *apiError {
	for at := 0; at < len(p.source); {
		rest := p.source[at:]
		switch rest[0] {
		case '<':
			n, err := p.tag(at)
			if err != nil {
				return err
			}
			at += n
		case '&':
			found := reference.FindString(rest)
			if found == "" {
				found = "&"
				p.write(found)
			} else {
				p.write(html.UnescapeString(strings.TrimSuffix(found, ";") + ";"))
			}
			at += len(found)
		default:
			n := strings.IndexAny(rest, "<&")
			if n < 0 {
				n = len(rest)
			}
			p.write(rest[:n])
			at += n
		}
	}
	if n := len(p.open); n > 0 {
		return cannotParse(`Can't find end tag corresponding to start tag "` + p.open[n-1].name + `"`)
	}
	return nil
}

func cannotParse(problem string) *apiError { return badRequest("can't parse entities: %s", problem) }

func (p *parser) write(text string) {
	p.text.WriteString(text)
	p.length += units(text)
}

// tag reads the tag that begins at the byte at, and returns its length.
func (p *parser) tag(at int) (int, *apiError) {
	offset := " at byte offset " + strconv.Itoa(at)
	end := strings.IndexByte(p.source[at:], '>')
	if end < 0 {
		return 0, cannotParse("Unclosed start tag" + offset)
	}
	inner := p.source[at+1 : at+end]
	if name, ok := strings.CutPrefix(inner, "/"); ok {
		return end + 1, p.close(strings.ToLower(strings.TrimSpace(name)), offset)
	}
	name, attributes, _ := strings.Cut(inner, " ")
	name = strings.ToLower(name)
	e, ok := entityOf(name, attributes)
	if !ok {
		return 0, cannotParse(`Unsupported start tag "` + name + `"` + offset)
	}
	e.Offset = p.length
	p.open = append(p.open, tag{name: name, entity: e})
	return end + 1, nil
}

func (p *parser) close(name, offset string) *apiError {
	n := len(p.open)
	if n == 0 {
		return cannotParse("Unexpected end tag" + offset)
	}
	top := p.open[n-1]
	if name != top.name {
		return cannotParse("Unmatched end tag" + offset + `, expected "</` + top.name + `>", found "</` + name + `>"`)
	}
	p.open = p.open[:n-1]
	e := top.entity
	e.Length = p.length - e.Offset
	inPre := n > 1 && p.open[n-2].name == "pre" && name == "code" // <pre><code class="language-…">: one block
	switch {
	case inPre:
		p.open[n-2].entity.Language = e.Language
	case e.Length > 0 && (name != "a" || e.URL != ""):
		if name == "code" {
			e.Language = ""
		}
		p.entities = append(p.entities, e)
	}
	return nil
}

var attribute = regexp.MustCompile(`([a-zA-Z-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))`)

// entityOf says what a tag means; false for tags that the Bot API does not know.
func entityOf(name, attributes string) (Entity, bool) {
	attr := map[string]string{}
	for _, m := range attribute.FindAllStringSubmatch(attributes, -1) {
		attr[strings.ToLower(m[1])] = html.UnescapeString(cmp.Or(m[2], m[3], m[4]))
	}
	switch name {
	case "b", "strong":
		return Entity{Type: "bold"}, true
	case "i", "em":
		return Entity{Type: "italic"}, true
	case "u", "ins":
		return Entity{Type: "underline"}, true
	case "s", "strike", "del":
		return Entity{Type: "strikethrough"}, true
	case "tg-spoiler":
		return Entity{Type: "spoiler"}, true
	case "span":
		return Entity{Type: "spoiler"}, attr["class"] == "tg-spoiler"
	case "a":
		return Entity{Type: "text_link", URL: attr["href"]}, true
	case "code":
		return Entity{Type: "code", Language: strings.TrimPrefix(attr["class"], "language-")}, true
	case "pre":
		return Entity{Type: "pre"}, true
	case "blockquote":
		if strings.Contains(attributes, "expandable") {
			return Entity{Type: "expandable_blockquote"}, true
		}
		return Entity{Type: "blockquote"}, true
	case "tg-emoji":
		return Entity{Type: "custom_emoji"}, attr["emoji-id"] != ""
	default:
		return Entity{}, false
	}
}
