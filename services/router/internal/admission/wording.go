package admission

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// All texts that admission answers with, as Markdown.

const helpText = `**Commands**
- /status – what this conversation is doing right now
- /help – this list

Everything else is a message to the agent.`

// maxCommandRunes bounds how much of an unknown command is repeated.
const maxCommandRunes = 32

func unknownText(name string) string {
	shown := []rune(strings.Map(plain, name))
	if len(shown) > maxCommandRunes {
		shown = append(shown[:maxCommandRunes], '…')
	}
	return fmt.Sprintf("Unknown command `/%s`. It was not passed on to the agent. /help lists the commands.", string(shown))
}

// plain drops what would end a code span or a line.
func plain(r rune) rune {
	if r == '`' || r < ' ' {
		return -1
	}
	return r
}

// status is what /status shows. The zero session stands for a conversation that has not begun.
type status struct {
	profile string
	session store.Session
	since   time.Time
}

func (s status) text() string {
	return fmt.Sprintf("%s\n\nConversation: %s · Profile: %s", s.doing(), conversation(s.session.SessionID), s.profile)
}

func (s status) doing() string {
	switch s.session.State {
	case store.Running:
		return "Answering since " + clock(s.since) + waiting(s.session) + "."
	case store.Queued:
		return "Waiting for a free worker since " + clock(s.since) + waiting(s.session) + "."
	case store.Waiting:
		return "Waiting for an approval" + waiting(s.session) + "."
	case store.Paused:
		return "Paused by an operator; messages are kept."
	case store.Idle:
		return "Idle: nothing is running and nothing waits."
	default:
		return "No messages yet."
	}
}

// waiting counts the messages behind the one that is being answered.
func waiting(s store.Session) string {
	switch n := s.WantSeq - s.DoneSeq - 1; {
	case n <= 0:
		return ""
	case n == 1:
		return ", 1 message waiting"
	default:
		return fmt.Sprintf(", %d messages waiting", n)
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// conversation is the end of the id: the beginning of a UUIDv7 is a time and much the same for all of them.
func conversation(id uuid.UUID) string {
	if id == uuid.Nil {
		return "new"
	}
	text := id.String()
	return text[len(text)-8:]
}
