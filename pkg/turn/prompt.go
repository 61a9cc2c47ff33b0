package turn

import (
	"fmt"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/intent"
	"github.com/hermes-runtime/hermes/pkg/llm"
)

// Bounds, in characters, of what the runtime writes into a prompt beside the text of the message.
const (
	maxNameRunes    = 64
	maxQuoteRunes   = 300
	maxRefRunes     = 512
	maxCaptionRunes = 4096
)

// Prompt is the message as the model reads it. It is not ok if there is neither text nor attachment.
func (m Message) Prompt() (prompt agent.Prompt, ok bool) {
	prompt, _, ok = m.prompt()
	return prompt, ok
}

// prompt returns the cleaned text beside it.
func (m Message) prompt() (prompt agent.Prompt, text string, ok bool) {
	m.Text = intent.Clean(m.Text)
	if strings.TrimSpace(m.Text) == "" && len(m.Attachments) == 0 {
		return agent.Prompt{}, "", false
	}
	message := llm.Message{Role: llm.User, Name: oneLine(m.Name, maxNameRunes), Text: promptText(m)}
	return agent.Prompt{Message: message, InboxSeq: m.InboxSeq}, m.Text, true
}

// addedNote stands before a message that came while the turn was worked on.
const addedNote = "[the user added this while you were working]"

// promptText is a message as the model reads it: what it answers, what it says, what came with it.
func promptText(m Message) string {
	var parts []string
	if m.Added {
		parts = append(parts, addedNote)
	}
	if m.Quote != nil {
		parts = appendText(parts, quoted(m.Quote))
	}
	parts = appendText(parts, m.Text)
	for _, a := range m.Attachments {
		parts = append(parts, describe(a))
	}
	return strings.Join(parts, "\n")
}

func appendText(parts []string, text string) []string {
	if text == "" {
		return parts
	}
	return append(parts, text)
}

// quoted reminds the model of the message that this one answers; empty if its text is not known.
func quoted(q *event.Quote) string {
	text := oneLine(q.Text, maxQuoteRunes)
	switch {
	case text == "":
		return ""
	case q.Own:
		return "[in reply to your message: " + text + "]"
	default:
		return "[in reply to: " + text + "]"
	}
}

// describe tells of an attachment in one line: [image: photo.jpg, image/jpeg, 1024 bytes, ref: tg:1, caption: before].
func describe(a event.Attachment) string {
	var facts []string
	for _, f := range []struct {
		label, value string
		limit        int
	}{
		{"", a.Name, maxNameRunes},
		{"", a.MIME, maxNameRunes},
		{"", size(a.Size), maxNameRunes},
		{"ref: ", a.Ref, maxRefRunes},
		{"caption: ", a.Caption, maxCaptionRunes},
	} {
		if value := oneLine(f.value, f.limit); value != "" {
			facts = append(facts, f.label+value)
		}
	}
	kind := oneLine(a.Kind, maxNameRunes)
	if kind == "" {
		kind = "attachment"
	}
	if len(facts) == 0 {
		return "[" + kind + "]"
	}
	return "[" + kind + ": " + strings.Join(facts, ", ") + "]"
}

func size(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// oneLine makes a text of somebody fit to stand inside a line of the runtime: no line breaks, no brackets that could end
// the runtime's own, and at most limit characters.
func oneLine(text string, limit int) string {
	text = strings.NewReplacer("[", "(", "]", ")").Replace(intent.Clean(text))
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return string(runes)
}
