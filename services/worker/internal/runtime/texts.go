package runtime

import (
	"strings"
	"time"
)

// apologyText is for the user.
const apologyText = "Sorry, I could not finish this: something went wrong on my side. Please try again in a moment."

// supersededText tells somebody whose message is not answered.
const supersededText = "A newer message has replaced this one, so it gets no answer of its own."

// incompleteText tells somebody whose message was too large for the inbox and is gone.
const incompleteText = "Sorry, the content of your message is not available any more. Please send it again."

// Texts for the model.
const (
	noAnswerText = "no answer came in time"
	lostText     = "(the content of this message is not available)"
)

// defaultPrompt is the system prompt of a profile that has none.
const defaultPrompt = "You are Hermes, a helpful assistant. Answer in the language of the user, briefly and precisely. " +
	"Use Markdown where it helps. Say so when you do not know something."

const (
	workspaceNote = "Your tools work in a workspace folder that belongs to this conversation: files that you write there " +
		"are still there in later messages, and no other conversation sees them."
	sharedNote = "Several people write in this conversation; each message names its author in brackets before the text."
	clientNote = "Client instructions:"
)

// noteFacts are what the notes of a run are made of.
type noteFacts struct {
	now           time.Time
	place         string
	shared, tools bool
	// instructions are the client's own, "" if it has none.
	instructions string
}

// notes tell the model where and when it speaks. They hold the date and no time, so that requests of one day share
// their beginning.
func notes(f noteFacts) string {
	lines := []string{"Today is " + f.now.UTC().Format("Monday, 2 January 2006") + " (UTC)."}
	if f.place != "" {
		lines = append(lines, "You are talking on "+f.place+".")
	}
	if f.shared {
		lines = append(lines, sharedNote)
	}
	if f.tools {
		lines = append(lines, workspaceNote)
	}
	if f.instructions != "" {
		lines = append(lines, "", clientNote, f.instructions)
	}
	return strings.Join(lines, "\n")
}
