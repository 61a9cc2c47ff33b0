package webhook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
)

// Receiver understands what one channel is sent.
type Receiver struct {
	secrets  []config.Secret
	unsigned bool
	text     pointer
	conv     pointer
	user     pointer
	thread   pointer
	id       pointer
	// policy is "" where messages bring none.
	policy pointer
}

// pointer is where a field stands in the body.
type pointer string

func orDefault(configured, fallback string) pointer {
	if configured == "" {
		return pointer(fallback)
	}
	return pointer(configured)
}

// name is the pointer as clients know the field: "text" for /text, "data/text" for /data/text.
func (p pointer) name() string { return string(p[1:]) }

// NewReceiver returns the receiver of a channel. It reads the secrets once, to fail early.
func NewReceiver(cfg config.Webhook) (*Receiver, error) {
	if _, err := readKeys(cfg.Secrets); err != nil {
		return nil, err
	}
	if len(cfg.Secrets) == 0 && !cfg.Unsigned {
		return nil, errors.New("a webhook needs a secret unless it is unsigned")
	}
	r := &Receiver{
		secrets: cfg.Secrets, unsigned: cfg.Unsigned && len(cfg.Secrets) == 0,
		text: orDefault(cfg.TextPointer, "/text"), conv: orDefault(cfg.ConversationPointer, "/conversation"),
		user: orDefault(cfg.UserPointer, "/user"), thread: "/thread", id: pointer(cfg.IDPointer),
		policy: pointer(cfg.PolicyPointer),
	}
	for _, p := range []pointer{r.text, r.conv, r.user, r.id, r.policy} {
		if p != "" && p[0] != '/' {
			return nil, fmt.Errorf("%q is no JSON pointer, it must begin with /", p)
		}
	}
	return r, nil
}

// Verify checks the signature of the raw body. Channels without secrets accept everything. Errors: ErrSignature, or
// that of reading a secret.
func (r *Receiver) Verify(header http.Header, body []byte, now time.Time) error {
	if r.unsigned {
		return nil
	}
	keys, err := readKeys(r.secrets)
	if err != nil {
		return err
	}
	return Verify(keys, header, body, now)
}

// Incoming is what a body says. Ids are as the client wrote them.
type Incoming struct {
	Text, Conversation, User, Thread string
	// ID identifies the event, see [Receiver.Parse].
	ID string
	// Policy is the busy policy that the message asks for, "" for none.
	Policy event.Policy
	// ConversationField and the like name where the fields stand, for errors.
	ConversationField, UserField, ThreadField, IDField string
}

// FieldError is a body that cannot be used.
type FieldError struct {
	Field, Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Parse reads a verified request. The event id is, in this order: the configured field, the webhook-id header, the
// Idempotency-Key header, the hash of the body together with the five minutes that now falls into. Errors are
// *FieldError.
func (r *Receiver) Parse(header http.Header, body []byte, now time.Time) (Incoming, error) {
	doc, err := decodeObject(body)
	if err != nil {
		return Incoming{}, err
	}
	in := Incoming{ConversationField: r.conv.name(), UserField: r.user.name(), ThreadField: r.thread.name(), IDField: "id"}
	if in.Text, err = optional(doc, r.text); err != nil {
		return Incoming{}, err
	}
	if in.Conversation, err = optional(doc, r.conv); err != nil {
		return Incoming{}, err
	}
	if in.User, err = optional(doc, r.user); err != nil {
		return Incoming{}, err
	}
	if in.Thread, err = optional(doc, r.thread); err != nil {
		return Incoming{}, err
	}
	if in.Policy, err = r.policyOf(doc); err != nil {
		return Incoming{}, err
	}
	return in, r.identify(&in, doc, header, body, now)
}

func (r *Receiver) policyOf(doc any) (event.Policy, error) {
	if r.policy == "" {
		return "", nil
	}
	text, err := optional(doc, r.policy)
	if err != nil {
		return "", err
	}
	policy, field := event.Policy(text), r.policy.name()
	if err := event.CheckPolicy(field, policy); err != nil {
		return "", &FieldError{Field: field, Problem: strings.TrimPrefix(err.Error(), field+": ")}
	}
	return policy, nil
}

func (r *Receiver) identify(in *Incoming, doc any, header http.Header, body []byte, now time.Time) error {
	if r.id != "" {
		id, err := textAt(doc, string(r.id))
		if err != nil {
			return &FieldError{Field: r.id.name(), Problem: err.Error()}
		}
		in.ID, in.IDField = id, r.id.name()
		return nil
	}
	for _, name := range []string{HeaderID, "Idempotency-Key"} {
		if in.ID = header.Get(name); in.ID != "" {
			in.IDField = name
			return nil
		}
	}
	in.ID = bodyID(body, now)
	return nil
}

// bodyID is the same for equal bodies within five minutes on the clock.
func bodyID(body []byte, now time.Time) string {
	h := sha256.New()
	h.Write([]byte(strconv.FormatInt(now.Unix()/int64(Window/time.Second), 10) + "\n"))
	h.Write(body)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func decodeObject(body []byte) (map[string]any, error) {
	if !utf8.Valid(body) {
		return nil, &FieldError{Field: "body", Problem: "not valid UTF-8"}
	}
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil || doc == nil {
		return nil, &FieldError{Field: "body", Problem: "is not a JSON object"}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &FieldError{Field: "body", Problem: "goes on after the JSON object"}
	}
	return doc, nil
}

func optional(doc any, p pointer) (string, error) {
	text, err := textAt(doc, string(p))
	if errors.Is(err, errMissing) {
		return "", nil
	}
	if err != nil {
		return "", &FieldError{Field: p.name(), Problem: err.Error()}
	}
	return text, nil
}
