package sessionapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// content is the body of a message.
type content struct {
	Text        string             `json:"text"`
	Attachments []event.Attachment `json:"attachments,omitempty"`
	BusyPolicy  event.Policy       `json:"busy_policy,omitempty"`
}

// decode reads a body. Members that it does not know are errors: a misspelt one would be lost in silence.
func decode(raw []byte) (content, error) {
	if !utf8.Valid(raw) {
		return content{}, httpapi.Invalid("body", "body: not valid UTF-8")
	}
	var c content
	var attachments []json.RawMessage
	err := object("body", "", raw, map[string]any{
		"text": &c.Text, "attachments": &attachments, "busy_policy": (*string)(&c.BusyPolicy),
	})
	if err != nil {
		return content{}, err
	}
	if err := event.CheckPolicy("busy_policy", c.BusyPolicy); err != nil {
		return content{}, httpapi.Invalid("busy_policy", err.Error())
	}
	for i, one := range attachments {
		a, err := attachment(fmt.Sprintf("attachments[%d]", i), one)
		if err != nil {
			return content{}, err
		}
		c.Attachments = append(c.Attachments, a)
	}
	return c, nil
}

func attachment(name string, raw json.RawMessage) (a event.Attachment, err error) {
	err = object(name, name+".", raw, map[string]any{
		"kind": &a.Kind, "ref": &a.Ref, "mime": &a.MIME, "size": &a.Size, "name": &a.Name,
	})
	switch {
	case err != nil:
		return a, err
	case a.Kind == "":
		return a, httpapi.Invalid(name+".kind", name+".kind: must not be empty")
	case a.Ref == "":
		return a, httpapi.Invalid(name+".ref", name+".ref: must not be empty")
	case a.Size < 0:
		return a, httpapi.Invalid(name+".size", name+".size: must not be negative")
	default:
		return a, nil
	}
}

// object reads the members of the object name into the pointers in members; prefix stands before their names in errors.
func object(name, prefix string, raw json.RawMessage, members map[string]any) error {
	var found map[string]json.RawMessage
	if err := json.Unmarshal(raw, &found); err != nil || found == nil {
		return httpapi.Invalid(name, name+": is not a JSON object")
	}
	for _, member := range slices.Sorted(maps.Keys(found)) {
		target, known := members[member]
		if !known {
			unknown := prefix + shown(member)
			return httpapi.Invalid(unknown, unknown+": is not known")
		}
		if err := json.Unmarshal(found[member], target); err != nil {
			return httpapi.Invalid(prefix+member, prefix+member+": must be "+kindOf(target))
		}
	}
	return nil
}

// maxShownRunes bounds how much of an unknown name is repeated.
const maxShownRunes = 64

func shown(name string) string {
	runes := []rune(name)
	if len(runes) > maxShownRunes {
		return string(runes[:maxShownRunes]) + "…"
	}
	return name
}

func kindOf(target any) string {
	switch target.(type) {
	case *string:
		return "a string"
	case *int64:
		return "an integer"
	default:
		return "an array"
	}
}
