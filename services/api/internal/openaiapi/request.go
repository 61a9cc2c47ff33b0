package openaiapi

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/api/internal/profile"
	"github.com/hermes-runtime/hermes/services/api/internal/submit"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

const sessionHeader = "X-Session-Id"

// call is one request for a completion.
type call struct {
	submit.Submission
	who     auth.Principal
	profile profile.Profile
	// stateless: the conversation is this request's own.
	stateless            bool
	stream, includeUsage bool
}

// body is what is read of a request. Members that are not here are in [refused] or have no meaning for an agent.
type body struct {
	model        string
	messages     []message
	stream       bool
	includeUsage bool
	sessionID    string
}

// read reads and checks a request.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (*call, error) {
	key, chosen, err := submit.Key(r)
	if err != nil {
		return nil, err
	}
	if err := httpapi.CheckJSON(r); err != nil {
		return nil, err
	}
	raw, err := httpapi.ReadBody(w, r, h.maxBody)
	if err != nil {
		return nil, err
	}
	b, err := parse(raw)
	if err != nil {
		return nil, err
	}
	p, ok := h.profiles[b.model]
	if !ok {
		return nil, unknownModel(b.model)
	}
	talk, err := conversationOf(b.messages)
	if err != nil {
		return nil, err
	}
	session, err := sessionOf(r, b)
	if err != nil {
		return nil, err
	}
	c := &call{
		who: auth.From(r.Context()), profile: p, stateless: session == "", stream: b.stream, includeUsage: b.includeUsage,
	}
	if c.stateless {
		session = ownConversation(c.who, key)
	} else {
		talk.History = nil
	}
	m := p.Message(c.who, session, key)
	m.Text, m.Attachments, m.History, m.Fingerprint = talk.Text, talk.Attachments, talk.History, submit.Fingerprint(talk)
	c.Submission = submit.Submission{Message: m, Keyed: chosen}
	return c, nil
}

// ownConversation is the conversation of a stateless request: the same for the same key of the same user, so that a
// repetition finds the run.
func ownConversation(who auth.Principal, key string) string {
	return "cc-" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(who.Tenant+"\x00"+who.User+"\x00"+key)).String()
}

// sessionOf is the session that the client names, "" if it names none.
func sessionOf(r *http.Request, b body) (string, error) {
	named := r.Header.Values(sessionHeader)
	param, id := sessionHeader, ""
	switch {
	case len(named) > 1:
		return "", httpapi.Invalid(sessionHeader, sessionHeader+": is there more than once")
	case len(named) == 1 && b.sessionID != "" && named[0] != b.sessionID:
		return "", httpapi.Invalid("metadata.session_id", "metadata.session_id: is another than "+sessionHeader)
	case len(named) == 1:
		id = named[0]
	case b.sessionID != "":
		param, id = "metadata.session_id", b.sessionID
	default:
		return "", nil
	}
	if err := accept.CheckID(param, id); err != nil {
		return "", httpapi.FromAccept(err, nil)
	}
	return id, nil
}

func parse(raw []byte) (b body, err error) {
	if !utf8.Valid(raw) {
		return b, httpapi.Invalid("body", "body: not valid UTF-8")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return b, httpapi.Invalid("body", "body: is not a JSON object")
	}
	if err := checkParameters(members); err != nil {
		return b, err
	}
	var options struct {
		IncludeUsage bool `json:"include_usage"`
	}
	var metadata struct {
		SessionID string `json:"session_id"`
	}
	for _, f := range []struct {
		name, kind string
		target     any
	}{
		{"model", "a string", &b.model},
		{"messages", "an array of objects with a role and content", &b.messages},
		{"stream", "true or false", &b.stream},
		{"stream_options", "an object", &options},
		{"metadata", "an object of strings", &metadata},
	} {
		if found := members[f.name]; found != nil && json.Unmarshal(found, f.target) != nil {
			return b, httpapi.Invalid(f.name, f.name+": must be "+f.kind)
		}
	}
	b.includeUsage, b.sessionID = options.IncludeUsage, metadata.SessionID
	switch {
	case b.model == "":
		return b, httpapi.Invalid("model", "model: must not be empty")
	case len(b.messages) == 0:
		return b, httpapi.Invalid("messages", "messages: must not be empty")
	default:
		return b, nil
	}
}

// talk is what a request says. Its members are those of a message to a session, so that a key stands for the same body
// there.
type talk struct {
	Text        string             `json:"text"`
	Attachments []event.Attachment `json:"attachments,omitempty"`
	History     []event.Turn       `json:"history,omitempty"`
}
