package openaiapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// message is one message of a conversation as clients send it.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Refusal   string          `json:"refusal"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// part is one piece of a message's content.
type part struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
	Image   struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// The roles of messages.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system"
	// roleDeveloper is the newer name of roleSystem.
	roleDeveloper = "developer"
)

// said is the content of one message.
type said struct {
	text   string
	images []string
}

// conversationOf takes messages apart: the last one is new and must be from the user, the others are its history.
func conversationOf(messages []message) (talk, error) {
	last := len(messages) - 1
	if messages[last].Role != roleUser {
		return talk{}, httpapi.Invalid("messages", "messages: the last one must have the role user")
	}
	var t talk
	for i, m := range messages {
		name := fmt.Sprintf("messages[%d]", i)
		role, err := roleOf(name, m)
		if err != nil {
			return talk{}, err
		}
		s, err := contentOf(name, m)
		switch {
		case err != nil:
			return talk{}, err
		case i == last:
			t.Text = s.text
			for _, ref := range s.images {
				t.Attachments = append(t.Attachments, event.Attachment{Kind: "image", Ref: ref})
			}
		case strings.TrimSpace(s.described()) != "":
			t.History = append(t.History, event.Turn{Role: role, Text: s.described()})
		}
	}
	return t, nil
}

// described is the content in words: history is text.
func (s said) described() string {
	parts := []string{s.text}
	for _, ref := range s.images {
		parts = append(parts, "[image: "+ref+"]")
	}
	return strings.TrimPrefix(strings.Join(parts, "\n"), "\n")
}

func roleOf(name string, m message) (string, error) {
	switch m.Role {
	case roleUser, roleSystem:
		return m.Role, nil
	case roleDeveloper:
		return roleSystem, nil
	case roleAssistant:
		if m.ToolCalls != nil && !isNothing(m.ToolCalls) {
			return "", httpapi.Invalid(name+".tool_calls", name+".tool_calls: is not supported: "+ownTools)
		}
		return roleAssistant, nil
	case "tool", "function":
		return "", httpapi.Invalid(name+".role", name+".role: "+m.Role+" is not supported: "+ownTools)
	default:
		return "", httpapi.Invalid(name+".role", name+".role: must be one of system, developer, user, assistant")
	}
}

// contentOf reads content that is a string or a list of parts. An assistant may have said nothing.
func contentOf(name string, m message) (s said, err error) {
	name += ".content"
	if len(m.Content) == 0 || string(m.Content) == "null" {
		if m.Role != roleAssistant {
			return s, httpapi.Invalid(name, name+": must be a string or an array of parts")
		}
		return said{text: m.Refusal}, nil
	}
	if json.Unmarshal(m.Content, &s.text) == nil {
		return s, nil
	}
	var parts []part
	if json.Unmarshal(m.Content, &parts) != nil {
		return s, httpapi.Invalid(name, name+": must be a string or an array of parts")
	}
	var texts []string
	for i, p := range parts {
		name := fmt.Sprintf("%s[%d]", name, i)
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "refusal":
			texts = append(texts, p.Refusal)
		case "image_url":
			if err := checkImage(name+".image_url.url", p.Image.URL); err != nil {
				return s, err
			}
			s.images = append(s.images, p.Image.URL)
		default:
			return s, httpapi.Invalid(name+".type", name+".type: must be text or image_url")
		}
	}
	s.text = strings.Join(texts, "\n")
	return s, nil
}

// checkImage takes images by reference: the bytes themselves do not fit into a message.
func checkImage(name, ref string) error {
	u, err := url.Parse(ref)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return httpapi.Invalid(name, name+": must be an http or https URL; images within the request are not supported")
	}
	return nil
}
