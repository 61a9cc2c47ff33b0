package channel

import (
	"time"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// Incoming is what an adapter reads in one event of its platform, before tenants, profiles and keys.
type Incoming struct {
	// Kind is message, edit, command or action.
	Kind event.Kind
	// EventID is the platform's id of the event, MessageID that of the message: the one that was sent, edited, or that
	// carries the button.
	EventID, MessageID string
	// Source holds the ids as the platform writes them; Account is the bot or app installation.
	Source  session.Source
	ReplyTo event.Address
	// Text has the mention of the bot and the word of a command removed.
	Text        string
	Attachments []event.Attachment
	Quote       *event.Quote
	Command     *event.Command
	MentionsBot bool
	// Press is set for actions.
	Press *Press
	// Album joins messages that the platform sends one by one.
	Album string
	// EditVersion orders the edits of one message.
	EditVersion string
	// SentAt is the platform's time.
	SentAt time.Time
	// Moved: the chat has a second id from now on; such an event has nothing else.
	Moved *Move
	// Ignore says why the event starts no turn; "" if it may. Such an event is acknowledged and counted, an edit is
	// recorded as well.
	Ignore string
}

// Press is a pressed button.
type Press struct {
	// ID identifies this press, Data is what the button carries.
	ID, Data string
}

// Move tells that a chat has the ids From, the older one, and To.
type Move struct {
	From, To string
}
