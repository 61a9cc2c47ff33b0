package session

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Source says who speaks, and where. Ids are opaque strings and are never escaped here; see [EscapeID] for ids that a
// client chooses freely.
type Source struct {
	Platform          string  `json:"platform"`
	Account           string  `json:"account,omitempty"`
	ChatID            string  `json:"chat_id,omitempty"`
	ChatType          string  `json:"chat_type,omitempty"`
	UserID            string  `json:"user_id,omitempty"`
	UserIDAlt         string  `json:"user_id_alt,omitempty"`
	ThreadID          string  `json:"thread_id,omitempty"`
	ProspectiveThread string  `json:"prospective_thread_id,omitempty"`
	ScopeID           *string `json:"scope_id,omitempty"`
	GuildID           *string `json:"guild_id,omitempty"`
	UserName          string  `json:"user_name,omitempty"`
	ChatName          string  `json:"chat_name,omitempty"`
	Bot               bool    `json:"is_bot,omitempty"`
}

// Scope returns the workspace of the source: scope_id where it is set, even to "", else guild_id, else "".
func (s Source) Scope() string {
	switch {
	case s.ScopeID != nil:
		return *s.ScopeID
	case s.GuildID != nil:
		return *s.GuildID
	default:
		return ""
	}
}

// Participant returns the stable id of the speaker: user_id_alt where the platform gives one, else user_id.
func (s Source) Participant() string {
	if s.UserIDAlt != "" {
		return s.UserIDAlt
	}
	return s.UserID
}

// maxIDBytes bounds every id. The longest real id (a Feishu open id, a Slack thread) is far below it.
const maxIDBytes = 1024

// Validate reports every id that is missing, too long or not valid UTF-8, naming its field.
func (s Source) Validate() error {
	var errs []error
	if s.Platform == "" {
		errs = append(errs, errors.New("source.platform: must not be empty"))
	}
	for _, f := range []struct{ name, value string }{
		{"platform", s.Platform},
		{"account", s.Account},
		{"chat_id", s.ChatID},
		{"chat_type", s.ChatType},
		{"user_id", s.UserID},
		{"user_id_alt", s.UserIDAlt},
		{"thread_id", s.ThreadID},
		{"prospective_thread_id", s.ProspectiveThread},
		{"scope_id", s.Scope()},
		{"user_name", s.UserName},
		{"chat_name", s.ChatName},
	} {
		errs = append(errs, validateID(f.name, f.value))
	}
	return errors.Join(errs...)
}

func validateID(name, value string) error {
	if len(value) > maxIDBytes {
		return fmt.Errorf("source.%s: %d bytes, at most %d are allowed", name, len(value), maxIDBytes)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("source.%s: not valid UTF-8", name)
	}
	for i := range len(value) {
		if value[i] == 0 {
			return fmt.Errorf("source.%s: contains a NUL byte", name)
		}
	}
	return nil
}
