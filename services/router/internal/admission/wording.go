package admission

import (
	"fmt"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
)

// Texts that admission answers with, as Markdown. What /status says is in status.go, the confirmation of a stop in
// package inbox.

const (
	nothingRunningText = "Nothing is running."
	closedQuestionText = "This question is no longer open."
	noQuestionText     = "No question is open."
	busyText           = "I am busy with your last message. This one was not kept: please send it again when the answer is there."
)

func fullText(limit int) string {
	return fmt.Sprintf("Too many messages are waiting (%d). This one was not kept: please send it again later.", limit)
}

func helpText(commands []command) string {
	var b strings.Builder
	b.WriteString("**Commands**\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "- /%s – %s\n", c.name, c.help)
	}
	b.WriteString("\nEverything else is a message to the agent.")
	return b.String()
}

func unknownText(name string) string {
	return fmt.Sprintf("Unknown command `/%s`. It was not passed on to the agent. /help lists the commands.", quoted(name))
}

func newConversationText(running bool, dropped int) string {
	return "New conversation." + droppedText(running, dropped)
}

// droppedText says what a new or another conversation costs.
func droppedText(running bool, dropped int) string {
	text := ""
	if running {
		text = " The answer in progress was dropped."
	}
	if dropped > 0 {
		text += " " + inbox.DroppedText(dropped)
	}
	return text
}

func emptyPolicyText(name string) string {
	return fmt.Sprintf("`/%s` needs a text: it says how that text is meant while I am busy.", quoted(name))
}

func refusalText(reason event.Refusal, userID string) string {
	if reason != event.RefusedStranger {
		return "This message was refused."
	}
	text := "You are not on the list of people who may use this bot."
	if userID != "" {
		text += fmt.Sprintf(" To be added, give its operator your id: `%s`", quoted(userID))
	}
	return text
}

// maxQuotedRunes bounds how much is repeated of what somebody else wrote.
const maxQuotedRunes = 32

// quoted is foreign text for a code span.
func quoted(s string) string {
	shown := []rune(strings.Map(plain, s))
	if len(shown) > maxQuotedRunes {
		shown = append(shown[:maxQuotedRunes], '…')
	}
	return string(shown)
}

// plain drops what would end a code span or a line.
func plain(r rune) rune {
	if r == '`' || r < ' ' {
		return -1
	}
	return r
}
