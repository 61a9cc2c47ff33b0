package accept

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/intent"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// prepare fills in what follows from the rest, cleans the text and checks everything that could make the message unfit
// for admission.
func prepare(m *event.Message) error {
	if err := cleanText(m); err != nil {
		return err
	}
	if m.Kind == "" {
		m.Kind = event.KindMessage
	}
	if m.SKey == "" {
		m.SKey = session.SKey(m.Tenant, m.SessionKey)
	}
	if m.UID == "" {
		// With the kind as the platform told it: whether the text is a command is our reading of it.
		m.UID = event.UID(m.Tenant, m.Source, m.PlatformMessageID, m.Kind, m.EditVersion)
	}
	if m.ReceivedAt.IsZero() {
		m.ReceivedAt = time.Now().UTC()
	}
	if cmd, ok := intent.ParseCommand(m.Text); ok && m.Kind == event.KindMessage {
		m.Kind, m.Command = event.KindCommand, &cmd
	}
	return check(m)
}

// cleanText refuses bytes that are not text and drops what no reader sees.
func cleanText(m *event.Message) error {
	switch {
	case !utf8.ValidString(m.Text):
		return &InvalidError{Field: "text", Problem: "not valid UTF-8"}
	case strings.ContainsRune(m.Text, 0): // no client means it; adapters that may get one drop it first
		return &InvalidError{Field: "text", Problem: "contains a NUL byte"}
	}
	m.Text = intent.Clean(m.Text)
	if m.Quote != nil {
		m.Quote.Text = intent.Clean(m.Quote.Text)
	}
	for i := range m.History {
		m.History[i].Text = intent.Clean(m.History[i].Text)
	}
	return nil
}

func check(m *event.Message) error {
	if err := bus.CheckToken("tenant", m.Tenant); err != nil {
		return invalid("tenant", err)
	}
	if err := m.Source.Validate(); err != nil {
		return invalid("source", err)
	}
	if err := event.CheckPolicy("busy_policy", m.BusyPolicy); err != nil {
		return invalid("busy_policy", err)
	}
	switch {
	case len(m.Text) > event.MaxTextBytes:
		return &InvalidError{
			Field: "text", TooLarge: true,
			Problem: fmt.Sprintf("%d bytes, at most %d are allowed", len(m.Text), event.MaxTextBytes),
		}
	case len(m.Attachments) > event.MaxAttachments:
		return &InvalidError{
			Field:   "attachments",
			Problem: fmt.Sprintf("%d, at most %d are allowed", len(m.Attachments), event.MaxAttachments),
		}
	case needsContent(m) && strings.TrimSpace(m.Text) == "" && len(m.Attachments) == 0:
		return &InvalidError{Field: "text", Problem: "has no content"}
	}
	if err := checkStrings(m); err != nil {
		return err
	}
	if err := m.Validate(); err != nil {
		return invalid("message", err)
	}
	return nil
}

// needsContent: the other kinds mean something without words, and of what a door refuses nothing is kept.
func needsContent(m *event.Message) bool {
	return m.Refusal == "" && (m.Kind == event.KindMessage || m.Kind == event.KindCommand)
}

// checkStrings refuses strings that no database column takes. Text has been cleaned before.
func checkStrings(m *event.Message) error {
	fields := []struct{ name, value string }{
		{"session_key", m.SessionKey},
		{"platform_message_id", m.PlatformMessageID},
		{"group", m.Group},
		{"call_id", m.CallID},
		{"edit_version", m.EditVersion},
		{"reply_to.chat_id", m.ReplyTo.ChatID},
		{"reply_to.thread_id", m.ReplyTo.ThreadID},
		{"reply_to.reply_to_message_id", m.ReplyTo.MessageID},
	}
	for i, a := range m.Attachments {
		for _, f := range [...]struct{ name, value string }{
			{"kind", a.Kind}, {"ref", a.Ref}, {"mime", a.MIME}, {"name", a.Name}, {"caption", a.Caption}, {"item_uid", a.ItemUID},
		} {
			fields = append(fields, struct{ name, value string }{fmt.Sprintf("attachments[%d].%s", i, f.name), f.value})
		}
	}
	for k, v := range m.ReplyTo.Extra {
		fields = append(fields, struct{ name, value string }{"reply_to.extra", k + v})
	}
	for _, f := range fields {
		if err := event.ValidateText(f.name, f.value); err != nil {
			return invalid(f.name, err)
		}
	}
	return nil
}

// invalid turns an error of the form "field: problem" into an InvalidError.
func invalid(field string, err error) *InvalidError {
	problem := err.Error()
	if rest, ok := strings.CutPrefix(problem, field+": "); ok {
		problem = rest
	}
	return &InvalidError{Field: field, Problem: problem}
}
