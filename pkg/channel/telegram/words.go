package telegram

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// words is what a message says to the bot.
type words struct {
	// text is without the bot's mention and without the command.
	text      string
	mentioned bool
	command   *event.Command
	// forOther: the command names another bot.
	forOther bool
}

// words reads the text or the caption of m.
func (m *message) words(bot Bot) words {
	text, entities := m.Text, m.Entities
	if text == "" {
		text, entities = m.Caption, m.CaptionEntities
	}
	units := utf16.Encode([]rune(text))
	if len(entities) == 0 {
		entities = findEntities(text)
	}
	var w words
	var cuts []entity
	for _, e := range entities {
		if !e.within(units) {
			continue
		}
		switch said := e.of(units); {
		case e.Type == "mention" && bot.Username != "" && strings.EqualFold(said, "@"+bot.Username),
			e.Type == "text_mention" && e.User != nil && e.User.id() == bot.ID:
			w.mentioned = true
			cuts = append(cuts, e)
		case e.Type == "bot_command" && e.Offset == 0 && w.command == nil && !w.forOther && !e.isPath(units):
			if w.read(said, bot); w.command != nil {
				cuts = append(cuts, e)
			}
		}
	}
	w.text = strings.TrimSpace(clean(cutOut(units, cuts)))
	if w.command != nil {
		w.command.Args = w.text
	}
	return w
}

// read takes "/name" or "/name@bot" apart.
func (w *words) read(said string, bot Bot) {
	name, to, named := strings.Cut(strings.TrimPrefix(said, "/"), "@")
	switch {
	case named && !strings.EqualFold(to, bot.Username):
		w.forOther = true
	case name != "":
		w.command = &event.Command{Name: strings.ToLower(name)}
	}
}

func (e entity) end() int { return e.Offset + e.Length }

// within reports whether e lies in the text and cuts no character in two.
func (e entity) within(units []uint16) bool {
	return e.Offset >= 0 && e.Length > 0 && e.Length <= len(units) && e.Offset <= len(units)-e.Length &&
		!tearsPair(units, e.Offset) && !tearsPair(units, e.end())
}

func tearsPair(units []uint16, i int) bool {
	return i > 0 && i < len(units) && utf16.DecodeRune(rune(units[i-1]), rune(units[i])) != unicode.ReplacementChar
}

func (e entity) of(units []uint16) string { return string(utf16.Decode(units[e.Offset:e.end()])) }

// isPath: Telegram marks the first name of /usr/bin as a command.
func (e entity) isPath(units []uint16) bool { return e.end() < len(units) && units[e.end()] == '/' }

// cutOut removes the entities, and of the space around each all but one.
func cutOut(units []uint16, cuts []entity) string {
	var b strings.Builder
	from := 0
	for _, e := range cuts {
		if e.Offset < from {
			continue // overlaps the one before
		}
		join(&b, string(utf16.Decode(units[from:e.Offset])))
		from = e.end()
	}
	join(&b, string(utf16.Decode(units[from:])))
	return b.String()
}

func join(b *strings.Builder, next string) {
	if before := b.String(); strings.HasSuffix(before, " ") || before == "" {
		next = strings.TrimLeft(next, " ")
	}
	b.WriteString(next)
}

var (
	commandAtStart = regexp.MustCompile(`^/[A-Za-z0-9_]+(@[A-Za-z0-9_]+)?`)
	mentionWord    = regexp.MustCompile(`(^|[^A-Za-z0-9_@/])(@[A-Za-z0-9_]+)`)
)

// findEntities finds commands and mentions the way that Telegram does, for servers that mark nothing.
func findEntities(text string) []entity {
	var found []entity
	if c := commandAtStart.FindString(text); c != "" {
		found = append(found, entity{Type: "bot_command", Length: len(c)})
	}
	for _, m := range mentionWord.FindAllStringSubmatchIndex(text, -1) {
		found = append(found, entity{
			Type: "mention", Offset: len(utf16.Encode([]rune(text[:m[4]]))), Length: m[5] - m[4], // ASCII
		})
	}
	return found
}
