package telegram

import (
	"strings"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/render"
)

// Split cuts texts at 4096 units and gives each file a message of its own. A text of up to 1024 units is the caption of
// the first file, a longer one goes before it. Buttons stand below the last message of their part.
func (s *Sender) Split(parts []channel.Part) []channel.Part {
	var messages []channel.Part
	for _, p := range parts {
		messages = append(messages, split(p)...)
	}
	return messages
}

func split(p channel.Part) []channel.Part {
	files := p.Files
	var messages []channel.Part
	if len(files) > 0 && p.EditOf == "" && units(p.Markdown) <= maxCaption {
		messages = append(messages, channel.Part{Markdown: p.Markdown, Files: files[:1:1]})
		files = files[1:]
	} else {
		for _, text := range render.Split(p.Markdown, maxText, units) {
			messages = append(messages, channel.Part{Markdown: text})
		}
	}
	for i := range files {
		messages = append(messages, channel.Part{Files: files[i : i+1 : i+1]})
	}
	for i := range messages {
		messages[i].Notice = p.Notice
	}
	if n := len(messages); n > 0 {
		messages[0].EditOf, messages[n-1].Actions = p.EditOf, p.Actions
	}
	return messages
}

// head is the beginning of an unfinished text, as much as one message holds.
func head(markdown string) formatted {
	return format(strings.TrimSpace(render.Head(markdown, maxText, units)), maxText)
}
