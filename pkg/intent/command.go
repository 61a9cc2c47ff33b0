package intent

import (
	"strings"
	"unicode"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// ParseCommand reports whether a text is a slash command: "/name", "/name@bot" or "/name arguments". The name is folded
// and in lower case, the arguments are what was written, without space around them. A name that contains "/" is a path
// and no command.
func ParseCommand(text string) (event.Command, bool) {
	text = strings.TrimSpace(Clean(text))
	word, args := cutWord(text)
	name, ok := strings.CutPrefix(Fold(word), "/")
	name, _, _ = strings.Cut(name, "@")
	if !ok || name == "" || strings.Contains(name, "/") {
		return event.Command{}, false
	}
	return event.Command{Name: strings.ToLower(name), Args: args}, true
}

func cutWord(text string) (word, rest string) {
	i := strings.IndexFunc(text, unicode.IsSpace)
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimSpace(text[i:])
}
