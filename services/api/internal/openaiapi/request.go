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

// What clients may say in a header where the protocol has no place for it.
const (
	sessionHeader = "X-Session-Id"
	policyHeader  = "X-Busy-Policy"
)

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
	busyPolicy   string
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
	if talk.BusyPolicy, err = policyOf(r, b); err != nil {
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
	m.Text, m.Attachments, m.History, m.BusyPolicy = talk.Text, talk.Attachments, talk.History, talk.BusyPolicy
	m.Fingerprint = submit.Fingerprint(talk)
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
	param, id, err := extension(r, sessionHeader, "metadata.session_id", b.sessionID)
	if err != nil || id == "" && param == "" {
		return "", err
	}
	if err := accept.CheckID(param, id); err != nil {
		return "", httpapi.FromAccept(err, nil)
	}
	return id, nil
}

// policyOf is the busy policy that the client asks for, "" if it leaves it to the profile.
func policyOf(r *http.Request, b body) (event.Policy, error) {
	param, policy, err := extension(r, policyHeader, "metadata.busy_policy", b.busyPolicy)
	if err != nil {
		return "", err
	}
	if err := event.CheckPolicy(param, event.Policy(policy)); err != nil {
		return "", httpapi.Invalid(param, err.Error())
	}
	return event.Policy(policy), nil
}

// extension is what the client says beside the protocol, in a header or in the metadata, and where it stands; param is ""
// if it says nothing.
func extension(r *http.Request, header, member, inBody string) (param, value string, err error) {
	named := r.Header.Values(header)
	switch {
	case len(named) > 1:
		return "", "", httpapi.Invalid(header, header+": is there more than once")
	case len(named) == 1 && inBody != "" && named[0] != inBody:
		return "", "", httpapi.Invalid(member, member+": is another than "+header)
	case len(named) == 1:
		return header, named[0], nil
	case inBody != "":
		return member, inBody, nil
	default:
		return "", "", nil
	}
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
		SessionID  string `json:"session_id"`
		BusyPolicy string `json:"busy_policy"`
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
	b.includeUsage, b.sessionID, b.busyPolicy = options.IncludeUsage, metadata.SessionID, metadata.BusyPolicy
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
	BusyPolicy  event.Policy       `json:"busy_policy,omitempty"`
	History     []event.Turn       `json:"history,omitempty"`
}
