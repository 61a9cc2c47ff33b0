package runtime

import (
	"fmt"
	"strings"
	"time"
)

// Texts for the user.
const (
	apologyText = "Sorry, I could not finish this: something went wrong on my side. Please try again in a moment."
	stoppedText = "Stopped."
)

// stoppedWith confirms a stop and says what becomes of the messages that wait.
func stoppedWith(waiting int) string {
	switch waiting {
	case 0:
		return stoppedText
	case 1:
		return stoppedText + " One message is waiting and comes next."
	default:
		return fmt.Sprintf("%s %d messages are waiting and come next.", stoppedText, waiting)
	}
}

// defaultPrompt is the system prompt of a profile that has none.
const defaultPrompt = "You are Hermes, a helpful assistant. Answer in the language of the user, briefly and precisely. " +
	"Use Markdown where it helps. Say so when you do not know something."

const (
	workspaceNote = "Your tools work in a workspace folder that belongs to this conversation: files that you write there " +
		"are still there in later messages, and no other conversation sees them."
	sharedNote = "Several people write in this conversation; each message names its author."
)

// notes tell the model where and when it speaks. They hold the date and no time, so that requests of one day share
// their beginning.
func notes(now time.Time, place string, shared, tools bool) string {
	lines := []string{"Today is " + now.UTC().Format("Monday, 2 January 2006") + " (UTC)."}
	if place != "" {
		lines = append(lines, "You are talking on "+place+".")
	}
	if shared {
		lines = append(lines, sharedNote)
	}
	if tools {
		lines = append(lines, workspaceNote)
	}
	return strings.Join(lines, "\n")
}
