package event

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/session"
)

// Kind says what an event means to the engine. It is ours, never the platform's event type, so that two platform
// events of one message share one UID.
type Kind string

// The kinds of events. Only KindMessage, KindAction, KindTimer and KindCommand may want a run.
const (
	KindMessage Kind = "message"
	KindEdit    Kind = "edit"
	KindAction  Kind = "action"
	KindCommand Kind = "command"
	KindReceipt Kind = "receipt"
	KindTimer   Kind = "timer"
	KindSystem  Kind = "system"
)

// Limits of one message. The encoded message has to stay under MaxEncodedBytes; larger bodies belong in the object
// store.
const (
	MaxTextBytes    = 20 << 20
	MaxAttachments  = 32
	MaxEncodedBytes = 256 << 10
)

// Message is one accepted event, complete for admission. It is immutable once it is published.
type Message struct {
	// UID identifies the platform message for ever; see [UID].
	UID        string         `json:"msg_uid"`
	Tenant     string         `json:"tenant"`
	SessionKey string         `json:"session_key"`
	SKey       string         `json:"skey"`
	Profile    string         `json:"profile"`
	RunClass   string         `json:"run_class,omitempty"`
	Kind       Kind           `json:"kind"`
	Source     session.Source `json:"source"`
	// ReplyTo is where answers go.
	ReplyTo           Address      `json:"reply_to"`
	Text              string       `json:"text,omitempty"`
	Attachments       []Attachment `json:"attachments,omitempty"`
	Quote             *Quote       `json:"quote,omitempty"`
	Command           *Command     `json:"command,omitempty"`
	PlatformMessageID string       `json:"platform_message_id"`
	EditVersion       string       `json:"edit_version,omitempty"`
	// Group joins the messages of one album or burst.
	Group    string   `json:"group,omitempty"`
	ItemUIDs []string `json:"item_uids,omitempty"`
	// SentAt is the platform's time (zero if it gives none), ReceivedAt ours.
	SentAt     time.Time `json:"sent_at,omitzero"`
	ReceivedAt time.Time `json:"received_at"`
	// BusyPolicy overrides the profile's policy for this message; admission stores the one that counts.
	BusyPolicy Policy `json:"busy_policy,omitempty"`
	// Fingerprint is the SHA-256 of the request body where the client chose the message id: the same id with another
	// body is a conflict.
	Fingerprint string `json:"fingerprint,omitempty"`
	// CallID is the call or question that an action answers.
	CallID string `json:"call_id,omitempty"`
	// BlobRef names the object that holds the whole message where it is too large for the bus: text, quote, attachments and
	// history are only there, see [Message.Detach].
	BlobRef string `json:"blob_ref,omitempty"`
	// Refusal is why the door refuses the message: it reaches no run, and its sender is told. Empty: it is not refused.
	Refusal Refusal `json:"refusal,omitempty"`
	// History is the conversation so far, of clients that keep it themselves.
	History []Turn `json:"history,omitempty"`
}

// Refusal is a reason that a door gives; the wording is the router's.
type Refusal string

// RefusedStranger says that the sender is not on the channel's allow-list.
const RefusedStranger Refusal = "stranger"

// Turn is an earlier message of a conversation that the client keeps itself. Role is user, assistant or system.
type Turn struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

// Address is where replies go. Only the platform that made it reads Extra.
type Address struct {
	Platform  string            `json:"platform"`
	Account   string            `json:"account,omitempty"`
	ChatID    string            `json:"chat_id,omitempty"`
	ThreadID  string            `json:"thread_id,omitempty"`
	MessageID string            `json:"reply_to_message_id,omitempty"`
	Extra     map[string]string `json:"extra,omitempty"`
}

// PlatformAPI is the platform of clients that read their replies from the store (HTTP API, terminal, webhooks without a
// reply URL).
const PlatformAPI = "api"

// Read reports whether the address reads its replies: nothing is sent to it, and frames are streamed for it.
func (a Address) Read() bool { return a.Platform == PlatformAPI }

// Attachment refers to bytes that stay with the platform or in the object store.
type Attachment struct {
	Kind string `json:"kind"`
	Ref  string `json:"ref"`
	MIME string `json:"mime,omitempty"`
	// Size is in bytes, 0 if unknown.
	Size int64  `json:"size,omitempty"`
	Name string `json:"name,omitempty"`
	// Caption is the text that belongs to this item of an album.
	Caption string `json:"caption,omitempty"`
	// ItemUID is the uid of the item in an event that was joined from several.
	ItemUID string `json:"item_uid,omitempty"`
}

// Captions is the text of an album: the captions of its items in order, each once and as a paragraph of its own. Doors
// join an album with it and admission parts one, so that both have the same text.
func Captions(attachments []Attachment) string {
	var paragraphs []string
	for _, a := range attachments {
		if a.Caption != "" && !slices.Contains(paragraphs, a.Caption) {
			paragraphs = append(paragraphs, a.Caption)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// Quote is the message that this one answers.
type Quote struct {
	MessageID string `json:"message_id,omitempty"`
	Text      string `json:"text,omitempty"`
	AuthorID  string `json:"author_id,omitempty"`
	Own       bool   `json:"own,omitempty"`
}

// Command is a recognised slash command; Name is lower case and has no slash.
type Command struct {
	Name string `json:"name"`
	Args string `json:"args,omitempty"`
}

// Detached returns the message as it goes over the bus while the whole of it, encoded, is the object ref.
func (m *Message) Detached(ref string) *Message {
	slim := *m
	slim.BlobRef, slim.Text, slim.Quote, slim.Attachments, slim.History = ref, "", nil, nil, nil
	return &slim
}

// Attach gives a detached message back what is only in its object: data is what the object holds. What admission has
// changed of the message since stays as it is, and so does a text that it has been given.
func (m *Message) Attach(data []byte) error {
	whole, err := Decode(data)
	if err != nil {
		return fmt.Errorf("object %s: %w", m.BlobRef, err)
	}
	if whole.UID != m.UID {
		return fmt.Errorf("object %s: belongs to message %s", m.BlobRef, whole.UID)
	}
	m.Quote, m.Attachments, m.History, m.BlobRef = whole.Quote, whole.Attachments, whole.History, ""
	if m.Text == "" { // else an edit, or the text behind a command
		m.Text = whole.Text
	}
	return nil
}

// UID returns the identity of a platform message: 32 hex digits. It contains tenant, platform, account and chat,
// because the stream's duplicate window spans all subjects.
func UID(tenant string, src session.Source, platformMessageID string, kind Kind, editVersion string) string {
	parts := []string{tenant, src.Platform, src.Account, src.ChatID, platformMessageID, string(kind)}
	if editVersion != "" {
		parts = append(parts, editVersion)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// Validate reports every field that would make the message unfit for admission.
func (m *Message) Validate() error {
	errs := []error{m.Source.Validate()}
	required := []struct{ name, value string }{
		{"msg_uid", m.UID},
		{"tenant", m.Tenant},
		{"session_key", m.SessionKey},
		{"skey", m.SKey},
		{"profile", m.Profile},
		{"kind", string(m.Kind)},
		{"reply_to.platform", m.ReplyTo.Platform},
	}
	for _, f := range required {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s: must not be empty", f.name))
		}
	}
	if m.SKey != "" && m.SKey != session.SKey(m.Tenant, m.SessionKey) {
		errs = append(errs, errors.New("skey: does not belong to tenant and session_key"))
	}
	errs = append(errs, ValidateText("text", m.Text), CheckPolicy("busy_policy", m.BusyPolicy))
	if len(m.Attachments) > MaxAttachments {
		errs = append(errs, fmt.Errorf("attachments: %d, at most %d are allowed", len(m.Attachments), MaxAttachments))
	}
	return errors.Join(errs...)
}

// ValidateText reports text that is too long, not valid UTF-8 or contains NUL, naming field.
func ValidateText(field, text string) error {
	switch {
	case len(text) > MaxTextBytes:
		return fmt.Errorf("%s: %d bytes, at most %d are allowed", field, len(text), MaxTextBytes)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s: not valid UTF-8", field)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%s: contains a NUL byte", field)
	default:
		return nil
	}
}
