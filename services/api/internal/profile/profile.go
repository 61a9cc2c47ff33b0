// Package profile addresses the agents that the API answers with: it knows which session a conversation of a client is.
package profile

import (
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
)

// Profile is one agent. It is a plain value.
type Profile struct {
	Name string
	pool string
	keys session.Options
}

// New returns the profile of that name.
func New(cfg config.Config, name string) (Profile, error) {
	p, ok := cfg.Profiles[name]
	if !ok {
		return Profile{}, fmt.Errorf("%q is not in profiles", name)
	}
	return Profile{Name: name, pool: p.WithDefaults().Pool, keys: p.KeyOptions(name)}, nil
}

// Message returns a message of who to a conversation, without content. key is its identity within the conversation, both
// are as the client chose them.
func (p Profile) Message(who auth.Principal, conversation, key string) *event.Message {
	src := source(conversation, who.User)
	m := &event.Message{
		Tenant: who.Tenant, SessionKey: session.Key(src, p.keys), Profile: p.Name, RunClass: p.pool,
		Kind: event.KindMessage, Source: src,
		ReplyTo:           event.Address{Platform: event.PlatformAPI, Account: event.PlatformAPI, ChatID: conversation},
		PlatformMessageID: key, ReceivedAt: time.Now().UTC(),
	}
	m.SKey = session.SKey(m.Tenant, m.SessionKey)
	m.UID = event.UID(m.Tenant, m.Source, m.PlatformMessageID, m.Kind, "")
	return m
}

// SKey is the session of a conversation.
func (p Profile) SKey(who auth.Principal, conversation string) string {
	return session.SKey(who.Tenant, session.Key(source(conversation, who.User), p.keys))
}

// source is where the messages of a conversation come from. The session does not depend on the user.
func source(conversation, user string) session.Source {
	return session.Source{
		Platform: event.PlatformAPI, Account: event.PlatformAPI, ChatID: session.EscapeID(conversation), ChatType: "dm", UserID: user,
	}
}
